-- Two servers whose clocks differ each granted windows of a fixed_window that the other one had not: every number went
-- once, and still a second of real time held three windows' numbers. So the kinds with numbers are fenced off as the
-- others are: who counts for another server than the one below begins a new generation, and rests until what that
-- server granted has left. A server that merely forgot goes on under the same generation, since its clock is the same.
-- Nodes of the last version leave both columns as they are.
alter table refundd.limits
    add column server text,
    add column server_since timestamptz;

comment on column refundd.limits.server is 'Whose memory counts under this generation, by Redis''s own ids of the process and its history; null where no node of this version began one.';
comment on column refundd.limits.server_since is 'When that server took over from another one, by Postgres''s clock; null where that is not known.';

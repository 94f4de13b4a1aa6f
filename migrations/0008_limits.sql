-- Five algorithms and one ledger. Every permit has a number; two kinds draw theirs from a fixed grid
-- (fixed_window, paced), so that the key alone keeps the limit. The others count in Redis, and lean on
-- the row below: a permit is good only under the generation that stands here. Whoever finds that
-- Redis forgot, or that the rule changed, moves the generation on and reads the ledger; nothing that
-- was granted before can be claimed after. See docs/decisions/0005.
create table refundd.limits (
    limit_name text        not null,
    generation bigint      not null default 1,
    rule       text        not null,
    adopted_at timestamptz not null default now(),
    adopted_by text        not null,
    older_us   bigint      not null default 0,
    older_at   timestamptz,
    constraint limits_pkey primary key (limit_name)
);

comment on table refundd.limits is 'One row for each limit that was ever used: under which generation its permits are good.';
comment on column refundd.limits.limit_name is 'The name in the configuration file, [limit.NAME].';
comment on column refundd.limits.generation is 'Permits of an older generation are refused by the claim.';
comment on column refundd.limits.rule is 'What it counts by: algorithm, permits, window, lateness (both in us), burst, segments, time zone.';
comment on column refundd.limits.adopted_at is 'When this generation began.';
comment on column refundd.limits.adopted_by is 'The process that began it.';
comment on column refundd.limits.older_us is 'How long the fixed windows were that it counted by before; such a permit may have been used that long after its number says.';
comment on column refundd.limits.older_at is 'When they were given up; null if there were none.';

-- What two rules must have in common for a count of the one to be read as the other's: all but permits and burst.
create function refundd.rule_shape(rule text) returns text
    language sql immutable strict parallel safe
return concat_ws(' ', split_part(rule, ' ', 1), split_part(rule, ' ', 3), split_part(rule, ' ', 4), split_part(rule, ' ', 6), split_part(rule, ' ', 7));

-- What the files said, and when: what a proof of the pace is held against.
create table refundd.limit_rules (
    limit_name   text        not null,
    published_at timestamptz not null default clock_timestamp(),
    rule         text        not null,
    node         text        not null,
    constraint limit_rules_pkey primary key (limit_name, published_at)
);

comment on table refundd.limit_rules is 'Every rule a node came to run under a name: a new row whenever it differs from the last.';
comment on column refundd.limit_rules.limit_name is 'The name in the configuration file, [limit.NAME].';
comment on column refundd.limit_rules.published_at is 'From then on it was in force, until the next row of that name.';
comment on column refundd.limit_rules.rule is 'As in refundd.limits.';
comment on column refundd.limit_rules.node is 'The process that wrote it.';

-- A permit may also go to another service that shares the limit.
alter table refundd.permits
    alter column refund_id drop not null,
    add column caller text,
    add constraint permits_went_to_somebody check (refund_id is not null or caller is not null) not valid;

comment on column refundd.permits.window_start is 'fixed_window: the window''s first microsecond; paced: the slot''s; the others: when the permit opened. Redis''s clock.';
comment on column refundd.permits.ordinal is 'Which permit of that window, slot or moment, from 1.';
comment on column refundd.permits.refund_id is 'The refund it was spent for, whether or not it turned out to be ready; null for another service.';
comment on column refundd.permits.caller is 'The service it was granted to over HTTP; null for a refund.';

-- The bank asked for slower: after cooling, the rate climbs back by steps.
alter table refundd.channels
    add column slow_percent smallint,
    add column slow_since timestamptz,
    add constraint channels_slow_by_a_share check (slow_percent between 1 and 99) not valid,
    add constraint channels_slow_says_since_when check ((slow_percent is null) = (slow_since is null)) not valid;

-- From the share it began with, ten points more every ten seconds; null when it is at its full rate.
create function refundd.slowed_to(percent smallint, since timestamptz) returns integer
    language sql stable parallel safe
return (select reached from (
            select percent + 10 * floor(greatest(0, extract(epoch from now() - since)) / 10)::integer as reached) climbed
         where reached < 100);

drop index refundd.channels_held_back;
create index channels_held_back on refundd.channels (channel)
    where paused_at is not null or cool_until is not null or slow_percent is not null;

comment on column refundd.channels.slow_percent is 'The share of the configured rate the channel began again with after the bank asked for slower; null at full rate.';
comment on column refundd.channels.slow_since is 'When it began to climb back from that share.';

-- Who counts on its own.
alter table refundd.nodes
    add column bucket text not null default 'redis',
    add column standing jsonb not null default '{}';

comment on column refundd.nodes.bucket is 'Where its lines stand: redis, or memory, and then it is the only node.';

comment on column refundd.nodes.standing is 'Which limits its channels wait for (waits, by channel) and which stricter rules of other files rule (overruled, by limit).';

-- The shares of a limit that each node counts alone (placement = "local_share").
create table refundd.limit_shares (
    limit_name text        not null,
    share      integer     not null,
    node       text        not null,
    seen_at    timestamptz not null default now(),
    constraint limit_shares_pkey primary key (limit_name, share),
    constraint limit_shares_count_from_one check (share >= 1)
);

comment on table refundd.limit_shares is 'Who counts which share of a limit; a share not seen for ten seconds may be taken by another node.';
comment on column refundd.limit_shares.limit_name is 'The name in the configuration file, [limit.NAME].';
comment on column refundd.limit_shares.share is 'Which share, from 1 to the limit''s `nodes`.';
comment on column refundd.limit_shares.node is 'The process that counts it.';
comment on column refundd.limit_shares.seen_at is 'When it last said so.';

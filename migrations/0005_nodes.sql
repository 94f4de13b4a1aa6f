-- Who is alive. Each node writes its row once a second; the one that sorts first among the living
-- looks for newly due refunds on behalf of all. Two that think so at once do no harm.
create table refundd.nodes (
    node          text        not null,
    started_at    timestamptz not null default now(),
    seen_at       timestamptz not null default now(),
    version       text        not null,
    channels      text[]      not null,
    config_digest text        not null,
    constraint nodes_pkey primary key (node)
) with (fillfactor = 50);

comment on table refundd.nodes is 'One row for each running node; a row not seen for a minute is removed.';
comment on column refundd.nodes.node is 'Its name and, after #, the process.';
comment on column refundd.nodes.started_at is 'When it first wrote this row.';
comment on column refundd.nodes.seen_at is 'When it last did.';
comment on column refundd.nodes.version is 'The version of refundd it runs.';
comment on column refundd.nodes.channels is 'The channels it runs.';
comment on column refundd.nodes.config_digest is 'A digest of its channels and limits; nodes with different files differ here.';

-- Refunds live in the company's own database, so that one is saved in the very transaction that
-- decides it. Everything of ours stays in one schema. A channel is published here by the nodes that
-- run it; the foreign key from refunds then refuses a refund for a channel nobody ever ran.
create schema if not exists refundd;

comment on schema refundd is 'refundd: refunds on their way to banks. Producers insert into refunds; all else is refundd''s own.';

create table refundd.channels (
    channel       text        not null,
    endpoint      text        not null,
    settings      jsonb       not null,
    published_by  text        not null,
    published_at  timestamptz not null default now(),
    retired_at    timestamptz,
    max_backlog   bigint,
    full_since    timestamptz,
    paused_at     timestamptz,
    pause_reason  text,
    paused_by     text,
    cool_until    timestamptz,
    cool_reason   text,
    constraint channels_pkey primary key (channel),
    constraint channels_name_is_plain check (channel ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    constraint channels_pause_says_why_and_who
        check ((paused_at is null) = (pause_reason is null) and (paused_at is null) = (paused_by is null)),
    constraint channels_cooling_says_why check ((cool_until is null) = (cool_reason is null)),
    constraint channels_backlog_bound_is_positive check (max_backlog > 0)
);

comment on table refundd.channels is 'One row for each channel that a node runs or once ran, as its configuration file says, and what holds it back.';
comment on column refundd.channels.channel is 'The name in the configuration file, [channel.NAME].';
comment on column refundd.channels.endpoint is 'Where refunds are POSTed; for people who read this table.';
comment on column refundd.channels.settings is 'The channel and its limits as the publishing node read them, without secrets; for people.';
comment on column refundd.channels.published_by is 'The node that last wrote this row.';
comment on column refundd.channels.published_at is 'When it did.';
comment on column refundd.channels.retired_at is 'Set when no living node has run the channel for five minutes; new refunds over HTTP and enqueue() are refused.';
comment on column refundd.channels.max_backlog is 'Past this many ready refunds, HTTP and enqueue() refuse more; null is no bound.';
comment on column refundd.channels.full_since is 'When the backlog was found at its bound; null while there is room.';
comment on column refundd.channels.paused_at is 'While set, no node sends anything through this channel.';
comment on column refundd.channels.pause_reason is 'Why, in the words of the person or node that paused it.';
comment on column refundd.channels.paused_by is 'Who paused it.';
comment on column refundd.channels.cool_until is 'The bank asked us to wait until then (429, 425, 503 with Retry-After); no node sends before.';
comment on column refundd.channels.cool_reason is 'What the bank answered.';

-- What every node reads twice a second: the few channels that are held back.
create index channels_held_back on refundd.channels (channel) where paused_at is not null or cool_until is not null;

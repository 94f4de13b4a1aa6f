-- Pause and resume left no trace, and a person's pause overwrote the reason of refundd's own, such as the bank's 401. Now each
-- change that an operator asks about is one row of refundd.events, written by triggers in the statement of the change itself:
-- no statement can forget it, nodes of the last version included. And what refundd suspends by itself stands in a table of its own.
-- Nodes of the last version obey a person's pause of one channel. They do not know the other suspensions: stop everything only
-- after all nodes run this version.

create table refundd.events (
    event_id   bigint      not null generated always as identity,
    at         timestamptz not null default now(),
    kind       text        not null,
    channel    text,
    limit_name text,
    refund_id  bigint,
    who        text        not null,
    before     jsonb,
    after      jsonb,
    reason     text,
    constraint events_pkey primary key (event_id),
    constraint events_kind_is_a_word check (kind ~ '^[a-z][a-z_]{0,39}$')
);

comment on table refundd.events is 'Who changed what, when and why. Rows are only ever added, by triggers; refundd.forget_events drops old ones.';
comment on column refundd.events.event_id is 'Grows with each event; `refundd log` and GET /v1/events page by time and then by it.';
comment on column refundd.events.at is 'When the change was made, by Postgres''s clock.';
comment on column refundd.events.kind is 'What happened: docs/sql.md lists the kinds.';
comment on column refundd.events.channel is 'The channel that it is about, * for all channels; null for a limit and for a node.';
comment on column refundd.events.limit_name is 'The limit that it is about, if it is about one.';
comment on column refundd.events.refund_id is 'The refund that it is about, if it is about one.';
comment on column refundd.events.who is 'The person, the caller or the process that made the change.';
comment on column refundd.events.before is 'What the change replaced; of settings only the keys that differ.';
comment on column refundd.events.after is 'What is so since; of settings only the keys that differ.';
comment on column refundd.events.reason is 'Why, in the words of the one who changed it.';

create index events_by_time on refundd.events (at, event_id);
create index events_of_channel on refundd.events (channel, at, event_id) where channel is not null;
create index events_of_refund on refundd.events (refund_id, at, event_id) where refund_id is not null;

create function refundd.events_are_only_added() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if old.at < now() - coalesce((select r.at_least from refundd.retention r where r.evidence = 'events'), interval '30 days') then
            return old;
        end if;
        raise exception 'event % is younger than refundd.retention allows to drop', old.event_id using errcode = 'RD003';
    end if;
    raise exception 'refundd.events is append-only' using errcode = 'RD003';
end $$;

create trigger events_are_never_changed before update or truncate on refundd.events
    for each statement execute function refundd.events_are_only_added();

create trigger events_stay_for_their_time before delete on refundd.events
    for each row execute function refundd.events_are_only_added();

-- A person's pause of one channel stays in refundd.channels, where nodes of the last version look.
alter table refundd.channels
    add column pause_until timestamptz,
    add column resumed_at timestamptz,
    add column resumed_by text,
    add column resume_reason text;

comment on column refundd.channels.paused_at is 'While set, and until pause_until, no node sends anything through this channel: a person paused it.';
comment on column refundd.channels.pause_until is 'When the pause ends by itself; null for a pause that a person must end.';
comment on column refundd.channels.resumed_at is 'When the last pause was ended, also by its own end.';
comment on column refundd.channels.resumed_by is 'Who ended it.';
comment on column refundd.channels.resume_reason is 'Why.';

-- A statement of the last version names no end. The end of an earlier pause must not become the end of its pause.
create function refundd.a_new_pause_has_its_own_end() returns trigger language plpgsql as $$
begin
    new.pause_until := null;
    return new;
end $$;

create trigger channels_pauses_have_their_own_ends before update on refundd.channels
    for each row when (new.paused_at is distinct from old.paused_at and new.pause_until is not null
                       and new.pause_until is not distinct from old.pause_until)
    execute function refundd.a_new_pause_has_its_own_end();

create table refundd.suspensions (
    channel     text        not null,
    source      text        not null,
    since       timestamptz not null default now(),
    until       timestamptz,
    reason      text        not null,
    who         text        not null,
    kind        text,
    probe_at    timestamptz,
    probe_by    text,
    probe_until timestamptz,
    ended_at    timestamptz,
    ended_by    text,
    end_reason  text,
    constraint suspensions_pkey primary key (channel, source),
    constraint suspensions_source_is_known check (source in ('all', 'credentials', 'breaker')),
    constraint suspensions_of_all_channels_have_a_star check ((source = 'all') = (channel = '*')),
    constraint suspensions_by_the_breaker_probe
        check ((source = 'breaker') = (probe_at is not null) and (source = 'breaker') = (kind is not null)),
    constraint suspensions_end_by_somebody check ((ended_at is null) = (ended_by is null))
);

comment on table refundd.suspensions is 'What suspends channels beside a person''s pause of one channel: the last suspension of each source. The view refundd.suspended shows what is in force.';
comment on column refundd.suspensions.channel is 'The channel; * for all channels.';
comment on column refundd.suspensions.source is 'all: a person paused everything. credentials: the bank answered 401, 403 or 407. breaker: outcomes of one kind, one after the other.';
comment on column refundd.suspensions.since is 'Since when.';
comment on column refundd.suspensions.until is 'When it ends by itself; null where somebody or something must end it.';
comment on column refundd.suspensions.reason is 'Why: a person''s words, or the bank''s answer.';
comment on column refundd.suspensions.who is 'The person or the process that suspended.';
comment on column refundd.suspensions.kind is 'breaker: the kind of outcome that tripped it, rejected or unknown.';
comment on column refundd.suspensions.probe_at is 'breaker: from then on one node may send one refund to see whether the bank is well.';
comment on column refundd.suspensions.probe_by is 'breaker: the process that may.';
comment on column refundd.suspensions.probe_until is 'breaker: for how long it may.';
comment on column refundd.suspensions.ended_at is 'When it ended; null while it is in force.';
comment on column refundd.suspensions.ended_by is 'Who or what ended it.';
comment on column refundd.suspensions.end_reason is 'Why it ended.';

create view refundd.suspended as
select c.channel, 'person'::text as source, c.paused_at as since, c.pause_until as until, c.pause_reason as reason,
       c.paused_by as who, null::text as kind, null::timestamptz as probe_at
  from refundd.channels c
 where c.paused_at is not null and (c.pause_until is null or c.pause_until > now())
 union all
select s.channel, s.source, s.since, s.until, s.reason, s.who, s.kind, s.probe_at
  from refundd.suspensions s
 where s.ended_at is null and (s.until is null or s.until > now());

comment on view refundd.suspended is 'What suspends channels now, one row for each cause. Cooling is not here: refundd.channels has it.';

-- Of two settings, the keys of the first that the second does not have so.
create function refundd.differing(one jsonb, other jsonb) returns jsonb
    language sql immutable parallel safe
return (select coalesce(jsonb_object_agg(k.key, k.value), '{}')
          from jsonb_each(one) k where other -> k.key is distinct from k.value);

comment on function refundd.differing is 'The keys of the first object that the second lacks or has with another value.';

-- The functions of the triggers run as the owner: nobody else may insert into refundd.events.
create function refundd.channels_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    was jsonb;
begin
    if tg_op = 'INSERT' then
        insert into refundd.events (kind, channel, who, after) values ('channel_added', new.channel, new.published_by, new.settings);
        return null;
    end if;
    if new.settings is distinct from old.settings then
        insert into refundd.events (kind, channel, who, before, after)
        values ('channel_changed', new.channel, new.published_by,
                refundd.differing(old.settings, new.settings), refundd.differing(new.settings, old.settings));
    end if;
    if old.retired_at is null and new.retired_at is not null then
        insert into refundd.events (kind, channel, who, reason)
        values ('channel_retired', new.channel, 'refundd', 'no living node runs the channel');
    elsif old.retired_at is not null and new.retired_at is null then
        insert into refundd.events (kind, channel, who) values ('channel_returned', new.channel, new.published_by);
    end if;
    if (old.paused_at, old.pause_until, old.pause_reason, old.paused_by)
       is distinct from (new.paused_at, new.pause_until, new.pause_reason, new.paused_by) then
        was := case when old.paused_at is not null then jsonb_strip_nulls(jsonb_build_object(
            'since', old.paused_at, 'until', old.pause_until, 'who', old.paused_by, 'reason', old.pause_reason)) end;
        if new.paused_at is not null then
            insert into refundd.events (kind, channel, who, before, after, reason)
            values ('paused', new.channel, new.paused_by, was,
                    jsonb_strip_nulls(jsonb_build_object('since', new.paused_at, 'until', new.pause_until)), new.pause_reason);
        elsif old.paused_at is not null then
            -- A statement of the last version does not say who resumes.
            insert into refundd.events (kind, channel, who, before, reason)
            values ('resumed', new.channel, case when new.resumed_at = now() then new.resumed_by else session_user end, was,
                    case when new.resumed_at = now() then new.resume_reason end);
        end if;
    end if;
    if new.cool_until > now() + interval '1 minute' and (old.cool_until is null or old.cool_until <= now()) then
        insert into refundd.events (kind, channel, who, after, reason)
        values ('cooled', new.channel, 'its bank', jsonb_build_object('until', new.cool_until), new.cool_reason);
    end if;
    return null;
end $$;

create trigger channels_added_are_events after insert on refundd.channels
    for each row execute function refundd.channels_write_events();

create trigger channels_changed_are_events after update on refundd.channels
    for each row when ((old.settings, old.retired_at, old.paused_at, old.pause_until, old.pause_reason, old.paused_by, old.cool_until)
                       is distinct from
                       (new.settings, new.retired_at, new.paused_at, new.pause_until, new.pause_reason, new.paused_by, new.cool_until))
    execute function refundd.channels_write_events();

create function refundd.suspensions_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    has_begun constant boolean := tg_op = 'INSERT'
        or (new.since, new.until, new.reason, new.who, new.kind) is distinct from (old.since, old.until, old.reason, old.who, old.kind);
    was jsonb;
begin
    if tg_op = 'UPDATE' and old.ended_at is null then
        was := jsonb_strip_nulls(jsonb_build_object(
            'source', old.source, 'since', old.since, 'until', old.until, 'who', old.who, 'reason', old.reason, 'kind', old.kind));
    end if;
    if has_begun and new.ended_at is null then
        insert into refundd.events (kind, channel, who, before, after, reason)
        values (case new.source when 'all' then 'paused' when 'breaker' then 'breaker_tripped' else 'suspended' end,
                new.channel, new.who, was,
                jsonb_strip_nulls(jsonb_build_object('source', new.source, 'since', new.since, 'until', new.until, 'kind', new.kind)),
                new.reason);
    elsif new.ended_at is not null and was is not null then
        insert into refundd.events (kind, channel, who, before, reason)
        values (case new.source when 'all' then 'resumed' when 'breaker' then 'breaker_ended' else 'released' end,
                new.channel, new.ended_by, was, new.end_reason);
    end if;
    return null;
end $$;

create trigger suspensions_added_are_events after insert on refundd.suspensions
    for each row execute function refundd.suspensions_write_events();

create trigger suspensions_changed_are_events after update on refundd.suspensions
    for each row when ((old.since, old.until, old.reason, old.who, old.kind, old.ended_at)
                       is distinct from (new.since, new.until, new.reason, new.who, new.kind, new.ended_at))
    execute function refundd.suspensions_write_events();

-- A person's decision, and a cancellation. Both write their author into `reason`; the journal has a decision's author, too.
create function refundd.refunds_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    decision text;
begin
    if new.state = 'cancelled' and old.state = 'ready' then
        -- `cancelled by WHO`, or `cancelled by WHO: WHY`.
        decision := case when new.reason like 'cancelled by %' then substr(new.reason, length('cancelled by ') + 1) else session_user end;
        insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
        values ('cancelled', new.channel, new.id, split_part(decision, ': ', 1),
                jsonb_build_object('state', old.state, 'version', old.version),
                jsonb_build_object('state', new.state, 'version', new.version),
                nullif(substr(decision, length(split_part(decision, ': ', 1)) + 3), ''));
        return null;
    end if;
    decision := substr(new.reason, length('decided by ') + 1);
    insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
    values ('decided', new.channel, new.id, split_part(decision, ': ', 1),
            jsonb_build_object('state', old.state, 'version', old.version),
            jsonb_build_object('state', new.state, 'version', new.version),
            nullif(substr(decision, length(split_part(decision, ': ', 1)) + 3), ''));
    return null;
end $$;

create trigger refunds_decided_or_cancelled_are_events after update on refundd.refunds
    for each row when ((old.state = 'ready' and new.state = 'cancelled')
                       or (old.state in ('review', 'unknown', 'accepted', 'failed') and new.state <> old.state
                           and new.reason like 'decided by %' and new.reason is distinct from old.reason))
    execute function refundd.refunds_write_events();

-- A name with a dot is a slowed channel's own limit, or a node's share.
create function refundd.limit_rules_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    was jsonb;
begin
    select r.rule into was from refundd.limit_rules r
     where r.limit_name = new.limit_name and r.published_at < new.published_at
     order by r.published_at desc limit 1;
    if was is distinct from new.rule then
        insert into refundd.events (kind, limit_name, who, before, after)
        values (case when was is null then 'limit_added' else 'limit_changed' end, new.limit_name, new.node, was, new.rule);
    end if;
    return null;
end $$;

create trigger limit_rules_are_events after insert on refundd.limit_rules
    for each row when (strpos(new.limit_name, '.') = 0)
    execute function refundd.limit_rules_write_events();

create function refundd.nodes_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        insert into refundd.events (kind, who, after) values ('node_joined', new.node, jsonb_build_object('version', new.version));
    else
        insert into refundd.events (kind, who, before, reason)
        values ('node_left', old.node, jsonb_build_object('seen_at', old.seen_at),
                case when old.seen_at < now() - interval '30 seconds' then 'it was not seen any more' else 'it stopped' end);
    end if;
    return null;
end $$;

create trigger nodes_joined_are_events after insert on refundd.nodes
    for each row execute function refundd.nodes_write_events();

create trigger nodes_left_are_events after delete on refundd.nodes
    for each row execute function refundd.nodes_write_events();

create function refundd.clock_steps_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into refundd.events (kind, who, after)
    values ('clock_stepped', new.node,
            jsonb_build_object('by_ms', round(extract(epoch from new.step_by) * 1000), 'witness', new.witness));
    return null;
end $$;

create trigger clock_steps_are_events after insert on refundd.clock_steps
    for each row execute function refundd.clock_steps_write_events();

-- An unreachable bank suspends nothing in the database: a node without a connection takes nothing. So this event alone has no
-- row of its own that it could be written beside.
create function refundd.note_reach(of_channel text, node text, trouble text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    insert into refundd.events (kind, channel, who, reason)
    values (case when trouble is null then 'bank_reached' else 'bank_unreachable' end, of_channel, node, left(trouble, 500));
end;

comment on function refundd.note_reach is 'Writes the event that a node could not reach a channel''s bank several times in a row, or, without trouble, that it can again.';

alter table refundd.retention drop constraint retention_is_of_permits_or_attempts;
alter table refundd.retention drop constraint retention_is_long_enough;
alter table refundd.retention
    add constraint retention_is_of_permits_attempts_or_events check (evidence in ('permits', 'attempts', 'events')),
    -- In seconds, since months differ. The same minimums as in [recovery].
    add constraint retention_is_long_enough
        check (extract(epoch from at_least) >= case evidence when 'permits' then 3600 else 30 * 86400 end);

comment on column refundd.retention.evidence is 'permits: the ledger. attempts: the journal. events: refundd.events.';
comment on column refundd.retention.at_least is 'No node can drop younger evidence. [recovery] keep_permits, keep_attempts and keep_events may only ask for more.';

insert into refundd.retention (evidence, at_least) values ('events', '30 days');

create function refundd.forget_events(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept      interval := refundd.evidence_is_kept_for('events', keep);
    forgotten integer;
begin
    delete from refundd.events where event_id = any(array(
        select e.event_id from refundd.events e where e.at < now() - kept order by e.at limit 5000));
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;

comment on function refundd.forget_events is 'Drops up to 5,000 events older than `keep`, never younger than refundd.retention says; answers how many.';

revoke execute on function refundd.events_are_only_added, refundd.differing, refundd.note_reach, refundd.forget_events, refundd.a_new_pause_has_its_own_end,
    refundd.channels_write_events, refundd.suspensions_write_events, refundd.refunds_write_events,
    refundd.limit_rules_write_events, refundd.nodes_write_events, refundd.clock_steps_write_events from public;

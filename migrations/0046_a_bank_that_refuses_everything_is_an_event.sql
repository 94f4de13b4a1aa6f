-- The log said when a breaker tripped, and when a bank named a wait of more than a minute. It did not say when a bank began to
-- answer "slow down" to everything: each of these pauses is short. Now the fifth refusal in a row is an event, and so is the end.
-- Refusals are in a row while each comes within thirty permits after the last pause (channels.refusals, written by refused.sql).
-- Nodes of the last version write the same column, so they need nothing new.

create or replace function refundd.channels_write_events() returns trigger
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
    if old.refusals < 5 and new.refusals >= 5 then
        insert into refundd.events (kind, channel, who, after, reason)
        values ('bank_refusing', new.channel, 'its bank',
                jsonb_build_object('refusals', new.refusals, 'until', new.cool_until), new.cool_reason);
    elsif old.refusals >= 5 and new.refusals < 5 then
        insert into refundd.events (kind, channel, who, reason)
        values ('bank_refusing_ended', new.channel, 'its bank', 'it refused no request for a while');
    end if;
    return null;
end $$;

create or replace trigger channels_changed_are_events after update on refundd.channels
    for each row when ((old.settings, old.retired_at, old.paused_at, old.pause_until, old.pause_reason, old.paused_by, old.cool_until, old.refusals < 5)
                       is distinct from
                       (new.settings, new.retired_at, new.paused_at, new.pause_until, new.pause_reason, new.paused_by, new.cool_until, new.refusals < 5))
    execute function refundd.channels_write_events();

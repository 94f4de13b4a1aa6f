-- A refund that had failed or was cancelled, and that the bank's statement shows as paid, could not be recorded as paid. People may have
-- settled it so by mistake, or an answer rule may have called a payment rejected. A person's only way out was `ready`, which sends the
-- refund again. Now people may decide `review`: look at it again. This sends nothing. The next decision keeps its rules, and the trigger
-- that sets `uncertain_at` on the way to `review` adds the one of uncertain sends: `ready` needs the confirmation and a second person.
-- What a person called `succeeded` stays so. docs/decisions/0018-two-people-decide.md says why.
-- Nodes of the last version offer no decision of `review`. A proposal of one is listed there as any other.

-- Every proposal there is keeps the wider check, so none is read.
alter table refundd.proposals
    drop constraint proposals_move_to_what_people_decide,
    add constraint proposals_move_to_what_people_decide check (moves_to in ('ready', 'succeeded', 'failed', 'cancelled', 'review')) not valid;

-- As before (migration 0036), and `review` for what has failed or was cancelled. From `unknown` and `accepted` it stays closed: it would end
-- the inquiries, and it would be a way from `unknown` to `ready`.
-- Programs were told that a cancelled refund is never sent, and may have paid in another way since. So a refund that was reopened after it
-- was cancelled never becomes `ready`, also not by way of `failed`. People reopen it, and so does a trigger, when an answer comes late
-- (late_evidence_makes_a_version). The line of the cancellation says so, and so does the line of a person's reopening if the month of the
-- first one was dropped. They stay in the journal while the refund has not ended.
create or replace function refundd.decision_is_allowed(r refundd.refunds, next text, seen integer, not_executed boolean) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select (r.version = seen or (seen is null and next = 'succeeded'))
       and r.state in ('review', 'unknown', 'accepted', 'failed', 'cancelled')
       and refundd.move_is_legal(r.state, next) and not (r.state = 'unknown' and next = 'ready')
       and (next <> 'review' or r.state in ('failed', 'cancelled'))
       and (next <> 'ready' or not_executed or not refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason))
       and (next <> 'ready' or not exists (select from refundd.attempts a
                                            where a.refund_id = r.id and a.kind = 'manual'
                                              and (a.code = 'reopened_cancelled' or a.moved_to = 'cancelled')))
$$;

-- As before (migration 0062), and the line of a decision of `review` says which state it left: `reopened_failed` or `reopened_cancelled`.
create or replace function refundd.carry_out(
    refund bigint, next text, seen integer, not_executed boolean, is_approved boolean, note text, who text, why text
) returns setof refundd.refunds
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    was text;
begin
    -- Held until the commit, so that the update below finds this state.
    select r.state into was from refundd.refunds r where r.id = refund for no key update;
    return query
    with moved as (
        update refundd.refunds r
           set state = next, version = r.version + 1, reason = note,
               due_at = case when next = 'ready' then now() else r.due_at end,
               attempts = case when next = 'ready' then 0 else r.attempts end,
               uncertain_at = case when next = 'ready' and not_executed then null else r.uncertain_at end,
               bank_ref = case when next = 'ready' and (not_executed or r.state = 'failed' and r.uncertain_at is null) then null else r.bank_ref end,
               settled_at = case when next in ('succeeded', 'failed', 'cancelled') then now() end
         where r.id = refund and refundd.decision_is_allowed(r, next, seen, not_executed)
           and (is_approved or refundd.needs_second_person(r, next) is null)
        returning r.*
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select m.id, m.channel, 'manual', coalesce(seen, 0), m.lease_epoch, who, 'decided', next,
               case when next = 'review' then 'reopened_' || was when not_executed then 'confirmed_not_executed' else 'decided' end, left(why, 500)
          from moved m
    )
    select * from moved;
end $$;

-- As before (migration 0066), and for a refund that was cancelled.
create or replace trigger refunds_decided_or_cancelled_are_events after update on refundd.refunds
    for each row when ((old.state = 'ready' and new.state = 'cancelled')
                       or (old.state in ('review', 'unknown', 'accepted', 'failed', 'cancelled') and new.state <> old.state
                           and new.reason like 'decided by %')
                       or old.channel is distinct from new.channel)
    execute function refundd.refunds_write_events();

-- refundd.ended was counted anew only if Postgres's clock was still behind the time up to which all was counted when refundd.count_ended was
-- called next. That time trails by more than two minutes. So after a step back of just that length, or after a longer one that was undone
-- before the next call, some refunds ended before that time and were never counted. Nodes note each step that they see, also one that was
-- undone since. Now notes of steps back that sum up to a minute let all be counted anew. Smaller ones cannot reach that time, and in a long
-- table counting anew takes long. Steps that were noted before this migration let nothing be counted anew: an upgrade reads no long table,
-- and the totals stay as they were. The runbook says how the owner lets all be counted anew.
alter table refundd.ended_until add column if not exists steps_seen bigint not null default 0;

update refundd.ended_until set steps_seen = coalesce((select max(s.step) from refundd.clock_steps s), 0);

comment on column refundd.ended_until.steps_seen is
    'The last step of refundd.clock_steps that was known when all was last counted anew, or when this column was added.';

-- As before (migration 0065), and anew after steps back that nodes noted.
create or replace function refundd.count_ended() returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    til       refundd.ended_until%rowtype;
    last_step bigint;
    back      interval;
begin
    select * into til from refundd.ended_until for update;
    select max(s.step), sum(s.step_by) filter (where s.step_by < interval '0') into last_step, back
      from refundd.clock_steps s where s.step > til.steps_seen;
    if til.counted_until > now() or back <= interval '-1 minute' then
        update refundd.ended set n = 0;
        update refundd.ended_until
           set counted_until = '-infinity', next_until = now() - interval '2 minutes', steps_seen = coalesce(last_step, til.steps_seen),
               next_after = refundd.transactions_under_way(), next_horizon = pg_current_xact_id();
        return;
    end if;
    if til.next_until is not null then
        if til.next_after && refundd.transactions_under_way()
           or pg_snapshot_xmin(pg_current_snapshot()) < til.next_horizon then
            return;
        end if;
        -- One that was noted may have been prepared since, and then has no virtual id any more.
        if exists (select from pg_catalog.pg_prepared_xacts p where p.database = current_database()) then
            return;
        end if;
        insert into refundd.ended as e (channel, state, n)
        select r.channel, r.state, count(*) from refundd.refunds r
         where r.settled_at >= til.counted_until and r.settled_at < til.next_until
         group by r.channel, r.state
            on conflict (channel, state) do update set n = e.n + excluded.n;
        til.counted_until := til.next_until;
    end if;
    update refundd.ended_until
       set counted_until = til.counted_until,
           next_until = greatest(til.counted_until, least(now() - interval '2 minutes', til.counted_until + interval '10 minutes')),
           next_after = refundd.transactions_under_way(),
           next_horizon = pg_current_xact_id();
end $$;

-- When the bank's answer "executed" came too late for a refund that had `failed`, or that a person had called cancelled, the state
-- stayed. Only `uncertain_at` told of it: no list showed the refund, no program heard of it, and nobody could call it succeeded. From
-- now on it goes to a person, like one that is `ready` (migration 0053).

-- As before (migration 0053), and `failed` and `cancelled` to `review`: the bank's late answer says that it executed the refund.
create or replace function refundd.move_is_legal(old_state text, new_state text) returns boolean
    language sql immutable parallel safe
return (old_state, new_state) in (
    ('ready', 'sending'), ('ready', 'cancelled'), ('ready', 'failed'), ('ready', 'review'),
    ('sending', 'ready'), ('sending', 'accepted'), ('sending', 'unknown'), ('sending', 'review'),
    ('sending', 'succeeded'), ('sending', 'failed'),
    ('accepted', 'review'), ('accepted', 'succeeded'), ('accepted', 'failed'),
    ('unknown', 'ready'), ('unknown', 'sending'), ('unknown', 'accepted'), ('unknown', 'review'),
    ('unknown', 'succeeded'), ('unknown', 'failed'),
    ('review', 'ready'), ('review', 'succeeded'), ('review', 'failed'), ('review', 'cancelled'),
    ('failed', 'ready'), ('failed', 'review'),
    ('cancelled', 'review')
);

-- As before (migration 0053), and what ended without a payment goes to a person, too. `accepted` is no contradiction there: the bank
-- may have taken the refund and rejected it after that.
create or replace function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    -- `accepted` and then `rejected` is no contradiction; `accepted` and then sent again would be a second refund.
    is_paid constant boolean := new.outcome = 'succeeded';
    is_had  constant boolean := new.outcome in ('succeeded', 'accepted');
    r       refundd.refunds;
begin
    -- Whoever holds the row may be about to make it `ready`, or to end it: wait, and look at what it is then.
    select * into r from refundd.refunds f where f.id = new.refund_id for no key update;
    if (is_had and (r.state = 'ready' or (r.state = 'unknown' and r.inquire_at is null))) or (is_paid and r.state in ('failed', 'cancelled')) then
        update refundd.refunds f
           set version = f.version + 1, state = 'review', settled_at = null,
               reason = format('said_paid: an answer that came late says that the bank has this refund: %s', new.outcome)
         where f.id = r.id returning f.* into r;
        perform refundd.recovery_moved(r, 'said_paid');
    else
        update refundd.refunds f
           set version = f.version + 1,
               uncertain_at = case when is_had and f.state = 'sending' then coalesce(f.uncertain_at, clock_timestamp()) else f.uncertain_at end
         where f.id = new.refund_id;
    end if;
    return null;
end $$;

-- Refunds of which that is true already: the answer came after the line that ended them.
do $$
declare
    r refundd.refunds;
begin
    for r in
        update refundd.refunds f
           set version = f.version + 1, state = 'review', settled_at = null,
               reason = 'said_paid: an answer that came late says that the bank has this refund: succeeded'
         where f.state in ('failed', 'cancelled') and f.lease_epoch > 0
           and exists (select from refundd.attempts a
                        where a.refund_id = f.id and a.moved_to is null and a.outcome = 'succeeded' and a.kind in ('send', 'inquiry')
                          and a.id > coalesce((select max(m.id) from refundd.attempts m where m.refund_id = f.id and m.moved_to is not null), 0))
         returning f.*
    loop
        perform refundd.recovery_moved(r, 'said_paid');
    end loop;
end $$;

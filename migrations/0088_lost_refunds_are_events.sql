-- A failover may lose a refund whose send or inquiry is open. The bank's answer then stood in the log of the node alone. If the node died before that
-- line, nobody heard of money that the bank paid for a refund without a row. From now on the statement that finds the refund lost writes an event.
-- Nodes of the last version do not call the function, and still write only the log line.

-- One event for each outcome: a node that did not see its commit tries again, and counts anew how long ago the request began. The index has a hash,
-- because an answer may be too long for an index.
create unique index if not exists events_of_lost_refunds
    on refundd.events (who, hashtextextended(before::text || (after - 'started_at')::text, 0)) where kind = 'refund_lost';

-- Called by settle.sql and settle_inquiry.sql for outcomes without a row alone. Answers the ref.
create or replace function refundd.note_lost_refund(
    refund bigint, lost_ref text, request_id uuid, amount_minor bigint, currency text, channel_name text, who text, kind text, number integer,
    started_at timestamptz, outcome text, status smallint, code text, message text, bank_ref text
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    -- The producer may have saved it again since the statement looked. The next try finds it, and its outcome goes to the journal.
    if exists (select from refundd.refunds f where f.id = refund and f.refund_ref = lost_ref) then
        raise exception 'refund % with the ref "%" is not lost', refund, lost_ref
            using errcode = 'RD006', hint = 'Only what comes of a refund without a row is an event. Settle again: the journal takes it.';
    end if;
    -- The bounds that the refund and its line in the journal had.
    if (refund > 0 and length(lost_ref) between 1 and 200 and request_id is not null and amount_minor > 0 and currency ~ '^[A-Z]{3}$'
        and channel_name ~ '^[a-z0-9][a-z0-9_-]{0,62}$' and length(who) between 1 and 500 and kind in ('send', 'inquiry') and number >= 0
        and outcome in ('succeeded', 'accepted', 'rejected', 'not_executed', 'unknown', 'review')
        and coalesce(length(code), 0) <= 100 and coalesce(length(message), 0) <= 500 and coalesce(length(bank_ref), 0) <= 200) is not true then
        raise exception 'what came of the lost refund % is beyond the bounds of the journal', refund using errcode = 'invalid_parameter_value';
    end if;
    -- No `refund_id`: another refund may have the id now.
    insert into refundd.events (kind, channel, who, before, after, reason)
    values ('refund_lost', channel_name, who,
            jsonb_build_object('refund_id', refund, 'refund_ref', lost_ref, 'request_id', request_id, 'amount_minor', amount_minor, 'currency', currency),
            jsonb_strip_nulls(jsonb_build_object(case kind when 'inquiry' then 'inquiry' else 'attempt' end, number, 'started_at', started_at,
                                                 'outcome', outcome, 'status', status, 'code', code, 'message', message, 'bank_ref', bank_ref)),
            case when started_at is null then 'a failover of Postgres lost this refund before its outcome was written: this request did not begin'
                 else 'a failover of Postgres lost this refund before its outcome was written: ask the bank what it executed' end)
    -- Only this index: an insert that fails because the ids of events are used up twice is tried again.
    on conflict (who, hashtextextended(before::text || (after - 'started_at')::text, 0)) where kind = 'refund_lost' do nothing;
    return lost_ref;
end $$;

comment on function refundd.note_lost_refund is 'Writes the event of what came of a refund that Postgres does not have any more. Answers the ref of the refund.';

revoke execute on function refundd.note_lost_refund from public;

-- A role of nodes may call it from now on, also before config/node-role.sql is run again.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.outcome_is_kept'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.note_lost_refund to %s', kept.role);
    end loop;
end $$;

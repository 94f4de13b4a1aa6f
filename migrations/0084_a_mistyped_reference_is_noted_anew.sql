-- A person who settles a refund as succeeded may note the bank's reference of it (migration 0045). A mistyped reference could never be
-- corrected. It also belonged to the wrong refund for ever: when the bank later paid another refund under that reference, that refund went
-- to a person as `bank_ref_taken`. Now a reference that a person noted can be noted anew, by a person who names the version of the refund.
-- A reference that the bank gave stays.
-- A command of the last version calls the function without the last two values. For it nothing changes.

-- As before (migration 0045), and what a person noted is replaced. The line of the first note says that it was a person's: only refunds that have
-- succeeded get such a line, they stay succeeded, and an answer of the bank fills only an empty reference. If the line is gone with its month,
-- nothing says who gave the reference, and it stays. A late answer with the same reference makes it the bank's: its line ends with it.
create or replace function refundd.note_bank_ref(refund bigint, reference text, who text, seen integer default null, why text default null)
returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r   refundd.refunds;
    was text;
begin
    perform refundd.people_give_reasons('a bank reference of refund ' || refund, reference, who);
    if refundd.refused_character(reference) is not null or refundd.holds_card_number(reference) then
        raise exception 'a bank reference holds a hidden character or what looks like a card number'
            using errcode = 'invalid_parameter_value', hint = 'Write the reference as it stands on the bank''s statement.';
    end if;
    -- Held until the commit, so that no late answer brings a reference meanwhile.
    select * into r from refundd.refunds f where f.id = refund and f.state = 'succeeded' for no key update;
    if not found or seen <> r.version then
        return false;
    end if;
    was := r.bank_ref;
    if was = reference then
        return true;
    end if;
    if was is not null then
        if seen is null
           or not exists (select from refundd.attempts a where a.refund_id = r.id and a.kind = 'manual' and a.code = 'bank_ref_noted')
           or exists (select from refundd.attempts a
                       where a.refund_id = r.id and a.kind in ('send', 'inquiry') and a.outcome in ('succeeded', 'accepted')
                         and substring(a.message from '^.*; bank reference (.{1,200})$') = was) then
            return false;
        end if;
        perform refundd.people_give_reasons('another bank reference of refund ' || refund, why, who);
    end if;
    -- Whoever saw the version before must look again.
    update refundd.refunds f set bank_ref = reference, version = f.version + case when seen is null then 0 else 1 end where f.id = r.id;
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code, message)
    values (r.id, r.channel, 'manual', r.version, r.lease_epoch, who, 'decided', 'bank_ref_noted',
            left('bank reference ' || reference || coalesce(', before ' || was, '') || coalesce(': ' || why, ''), 500));
    insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
    values ('bank_ref_noted', r.channel, r.id, who, case when was is not null then jsonb_build_object('bank_ref', was) end,
            jsonb_build_object('bank_ref', reference), why);
    return true;
end $$;

revoke execute on function refundd.note_bank_ref(bigint, text, text, integer, text) from public;

-- The roles that may call it go on doing so.
do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = to_regprocedure('refundd.note_bank_ref(bigint, text, text)') and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.note_bank_ref(bigint, text, text, integer, text) to %s', role);
    end loop;
end $$;

drop function if exists refundd.note_bank_ref(bigint, text, text);

comment on function refundd.note_bank_ref is 'Writes down the bank''s reference of a refund that has succeeded, with a line in the journal and an event. It replaces only a reference that a person noted, for a person who names the version and the reason. Answers whether the refund has this reference now.';

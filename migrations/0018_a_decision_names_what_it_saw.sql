-- A decision names what it saw. A refund was in review after an uncertain send; a person decided `ready`, the next send
-- was uncertain too, and the same request, repeated, sent it a third time. Now every change of state raises `version`,
-- and a decision is refused when the refund has another version than the decision names.
-- The default is kept in the catalog: no row is rewritten. Everybody waits for a moment, nobody for long.
alter table refundd.refunds add column version integer not null default 1;

comment on column refundd.refunds.version is 'One more with every change of state, and with every answer that came too late to change it. A decision names the version it was based on.';
comment on column refundd.refunds.uncertain_at is 'While set, a send may have been executed that nobody heard of; since then. Null in ready; kept while it is sent again, in review, and in failed unless the bank itself refused it.';
comment on column refundd.attempts.number is 'The Refundd-Attempt header of a send; of an inquiry, which one it was; of a decision, the version it named, 0 for none.';

-- Whether a send of a refund that is not being sent may have been executed. The second half is for people's word: what
-- they called failed was not refused by the bank. The journal is not asked, since its months may be gone.
create function refundd.may_have_been_executed(
    state text, uncertain_at timestamptz, first_sent_at timestamptz, reason text
) returns boolean
    language sql immutable parallel safe
return uncertain_at is not null
    or (state = 'failed' and first_sent_at is not null and coalesce(reason like 'decided by %', false));

comment on function refundd.may_have_been_executed is 'Whether an earlier send of a refund may have been executed; then a decision to send it again must confirm that it was not.';

-- As before; and the version rises with every move, also where an older node writes a statement that does not know it.
-- What goes to review may have been executed unless no byte of it ever left, and leaves review for ready only by a
-- statement that says it was not, by clearing uncertain_at. Only a person's decision does.
create or replace function refundd.only_legal_moves() returns trigger language plpgsql as $$
begin
    if new.version < old.version then
        raise exception 'refund % cannot go back from version % to %', old.id, old.version, new.version
            using errcode = 'RD002', hint = 'The version of a refund only rises.';
    end if;
    if new.state is not distinct from old.state then
        return new;
    end if;
    if not refundd.move_is_legal(old.state, new.state) then
        raise exception 'refund % cannot move from % to %', old.id, old.state, new.state
            using errcode = 'RD002', hint = 'The legal moves are listed in refundd.move_is_legal.';
    end if;
    if new.version = old.version then
        new.version := old.version + 1;
    end if;
    if new.state = 'ready' then
        if old.state = 'sending' and old.uncertain_at is not null then
            raise exception 'refund % may have been executed by an earlier send and cannot become ready', old.id
                using errcode = 'RD002', hint = 'What became of this send says nothing about the earlier one.';
        end if;
        if old.state in ('review', 'failed') and new.uncertain_at is not null then
            raise exception 'refund % may have been executed by an earlier send and becomes ready only by a decision that confirms it was not', old.id
                using errcode = 'RD002', hint = 'Decide with `refundd review settle`, or POST /v1/review, and confirm that it was not executed.';
        end if;
        new.uncertain_at := null;
    elsif new.state = 'unknown' then
        new.uncertain_at := clock_timestamp();
    elsif new.state = 'review' and new.uncertain_at is null
          and (old.state <> 'sending' or new.first_sent_at is not null) then
        new.uncertain_at := clock_timestamp();
    end if;
    if new.state not in ('unknown', 'accepted') then
        new.inquire_at := null;
    end if;
    return new;
end $$;

-- The moves of the plain way still call no function, where the statement raises the version itself.
drop trigger if exists refunds_make_only_legal_moves on refundd.refunds;

create trigger refunds_make_only_legal_moves before update on refundd.refunds
    for each row when (
        new.version < old.version
        or (old.state is distinct from new.state
            and (new.version = old.version or new.inquire_at is not null
                 or not (old.state = 'ready' and new.state = 'sending' or old.state = 'sending' and new.state = 'succeeded'))))
    execute function refundd.only_legal_moves();

-- An answer that comes when the lease is over moves nothing, but is evidence that an earlier look did not show. So it
-- makes a version of its own, and who decides must look again.
create function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update refundd.refunds r set version = r.version + 1 where r.id = new.refund_id;
    return null;
end $$;

revoke execute on function refundd.late_evidence_makes_a_version from public;

create trigger attempts_that_come_late_make_a_version after insert on refundd.attempts
    for each row when (new.moved_to is null and new.kind <> 'manual')
    execute function refundd.late_evidence_makes_a_version();

-- What is in review already, as the trigger would have marked it. There the journal is whole: no month with evidence of a
-- refund that did not end was ever dropped.
update refundd.refunds r set uncertain_at = now()
 where r.state = 'review' and r.uncertain_at is null
   and (r.first_sent_at is not null
        or exists (select from refundd.attempts a where a.refund_id = r.id and a.started_at is not null));

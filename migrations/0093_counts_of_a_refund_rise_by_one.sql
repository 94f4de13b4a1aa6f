-- One update by the role of nodes could write the highest number into `version`, `attempts`, `lease_epoch` or `inquiries` of a refund. No claim,
-- decision, cancellation or move could raise it any more, and no update lowers a version. So the refund stayed as it was, also after the stolen
-- password was changed. And a `reason` could have 100 MB, which every list of refunds then read.

-- As before (migration 0053), and nobody but the owner of the schema, and functions with its rights, raises these by more than one at a time.
-- Of a `reason` that no node writes, 2,000 characters stay. refundd's own have 1,000, and what a lapsed lease and a last inquiry add.
create or replace function refundd.only_legal_moves() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.version < old.version then
        raise exception 'refund % cannot go back from version % to %', old.id, old.version, new.version
            using errcode = 'RD002', hint = 'The version of a refund only rises.';
    end if;
    if (new.version - 1 > old.version or new.attempts - 1 > old.attempts or new.lease_epoch - 1 > old.lease_epoch or new.inquiries - 1 > old.inquiries)
       and not pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage') then
        raise exception 'version, attempts, lease_epoch and inquiries of refund % rise by one at a time', old.id
            using errcode = 'RD006', hint = 'Only the owner of the schema sets them to other values.';
    end if;
    -- Cut, and not refused: what moves the refund next may add to a reason that is long already.
    if octet_length(new.reason) > 10000 then
        new.reason := left(new.reason, 2000);
    end if;
    if new.state is not distinct from old.state then
        return new;
    end if;
    if old.state = 'sending' and new.state = 'unknown' and new.inquire_at is null and refundd.was_said_paid(old.id, true) then
        new.state := 'review';
        new.reason := 'said_paid: an answer that came late says that the bank has this refund';
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
        if old.state = 'unknown' and refundd.was_said_paid(old.id, true) then
            raise exception 'the bank has refund % by an answer of its own, so it cannot become ready', old.id
                using errcode = 'RD002', hint = 'It goes to `review`, where people decide.';
        end if;
        if old.state in ('review', 'failed') and new.uncertain_at is not null then
            raise exception 'refund % may have been executed by an earlier send and becomes ready only by a decision that confirms it was not', old.id
                using errcode = 'RD002', hint = 'Decide with `refundd review settle`, or POST /v1/review, and confirm that it was not executed.';
        end if;
        new.uncertain_at := null;
        new.sent_to := null;
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

-- As before (migration 0018), and the values above. They are compared here, so that claims and settlements still call no function. One is
-- subtracted, and not added: one more than the highest number is an error, and such a row could not be mended.
create or replace trigger refunds_make_only_legal_moves before update on refundd.refunds
    for each row when (
        new.version < old.version
        or new.version - 1 > old.version or new.attempts - 1 > old.attempts or new.lease_epoch - 1 > old.lease_epoch or new.inquiries - 1 > old.inquiries
        or octet_length(new.reason) > 10000
        or (old.state is distinct from new.state
            and (new.version = old.version or new.inquire_at is not null
                 or not (old.state = 'ready' and new.state = 'sending' or old.state = 'sending' and new.state = 'succeeded'))))
    execute function refundd.only_legal_moves();

-- What a hostile caller, or a hostile node, could still do. One payload of 16 KB, full of single digits, kept the search for card numbers
-- busy for 12 s, and the refunds that were saved with it failed. A node's role could make a refund certain by a detour through `sending`, and
-- could change the address at which a refund is asked about. And any role could block moves by a lock.

-- As before (migration 0049): the same law, in one pass over each row of digits. The sums for Luhn are there before the numbers are tried.
create or replace function refundd.holds_card_number(value text) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    rest    text := value;
    passed  integer := 0; -- characters of the value before `rest`
    run     text;
    signs   bytea;
    sign    integer;
    n       integer;      -- digits so far
    digits  integer[];
    places  integer[];    -- of the digits in the run
    begins  boolean[];    -- whether a block begins with the digit, also after the last one
    joined  integer[];    -- of the last digit of a block: the first digit that may belong to one number with it
    odd     integer[];    -- sums for Luhn, with the first digit doubled and each second one after it
    even    integer[];
    block   integer;      -- its first digit
    before  integer;      -- the size of the block before
    gap     integer := 0;
    is_list boolean := false;
    is_near boolean;      -- whether one separator stands before the block
    may     integer;
    four    integer;
    lengths integer;      -- a bit for each length of a scheme's numbers
    z       integer;
    number  text;
    around  text;
    first   integer;
    after   integer;
begin
    loop
        run := substring(rest from '[0-9](?:[^0-9A-Za-z]{0,3}[0-9]){12,}');
        if run is null then
            return false;
        end if;
        passed := passed + strpos(rest, run) - 1;
        rest := substr(rest, strpos(rest, run) + length(run));
        -- One byte for each character. The blank at the end ends the last block.
        signs := convert_to(regexp_replace(run, '[^0-9:,;]', ' ', 'g') || ' ', 'UTF8');
        n := 0; digits := '{}'; places := '{}'; begins := '{}'; joined := '{}'; odd := '[0:0]={0}'; even := odd;
        block := 1; before := 0; is_near := false; may := 1;
        for place in 0 .. length(signs) - 1 loop
            sign := get_byte(signs, place) - 48;
            if sign between 0 and 9 then
                n := n + 1;
                digits[n] := sign;
                places[n] := place;
                begins[n] := gap > 0 or n = 1;
                if begins[n] and n > 1 then
                    before := n - block;
                    block := n;
                    is_near := gap = 1 and not is_list;
                end if;
                gap := 0;
                is_list := false;
                if n % 2 = 1 then
                    odd[n] := odd[n - 1] + sign * 2 - case when sign > 4 then 9 else 0 end;
                    even[n] := even[n - 1] + sign;
                else
                    odd[n] := odd[n - 1] + sign;
                    even[n] := even[n - 1] + sign * 2 - case when sign > 4 then 9 else 0 end;
                end if;
            else
                if gap = 0 then
                    if not is_near and not (before between 4 and 6 and n - block + 1 between 3 and 6) then
                        may := block;
                    end if;
                    joined[n] := may;
                end if;
                gap := gap + 1;
                is_list := is_list or sign <> -16;
            end if;
        end loop;
        begins[n + 1] := true;
        for a in 1 .. n - 12 loop
            continue when not begins[a];
            four := digits[a] * 1000 + digits[a + 1] * 100 + digits[a + 2] * 10 + digits[a + 3];
            lengths := case
                when four / 1000 = 4 then (1 << 13) + (1 << 16) + (1 << 19)
                when four / 100 in (34, 37) then 1 << 15
                when four between 5100 and 5599 or four between 2221 and 2720 then 1 << 16
                when four between 3000 and 3059 or four / 100 in (36, 38, 39) then (1 << 20) - (1 << 14)
                when four / 100 = 35 then (1 << 20) - (1 << 16)
                when four / 100 in (50, 56, 57, 58, 59) or four / 1000 = 6 then (1 << 20) - (1 << 13)
                else 0 end;
            continue when lengths = 0;
            for size in 13 .. least(19, n - a + 1) loop
                z := a + size - 1;
                continue when not (begins[z + 1] and (lengths >> size) & 1 = 1);
                exit when joined[z] > a;
                continue when case when z % 2 = 1 then even[z] - even[a - 1] else odd[z] - odd[a - 1] end % 10 <> 0;
                number := substr(run, places[a] + 1, places[z] - places[a] + 1);
                -- A decimal fraction, or an article number, EAN-13.
                continue when number ~ '^[0-9]+[^0-9]*\.[0-9]+$'
                    or (number ~ '^[0-9]{13}$'
                        and (select sum(digits[a + i] * case when i % 2 = 0 then 1 else 3 end) % 10 = 0 from generate_series(0, 12) i));
                -- What stands around it decides the rest. A long text is read only here.
                first := passed + places[a] + 1;
                around := substr(value, greatest(first - 43, 1), 200);
                first := least(first, 44);
                after := first + length(number);
                -- A part of a list.
                continue when number ~ '[:,;]'
                    and (substr(around, after, 4) ~ '^[^0-9A-Za-z]*[:,;][^0-9A-Za-z]*[0-9]'
                         or substr(around, greatest(first - 4, 1), least(4, first - 1)) ~ '[0-9][^0-9A-Za-z]*[:,;][^0-9A-Za-z]*$');
                if not refundd.belongs_elsewhere(around, first, after) then
                    return true;
                end if;
            end loop;
        end loop;
        passed := passed + length(run);
    end loop;
end $$;

-- As before (migration 0032): what is the same for all starts is looked at once, and what excludes most of them comes first.
create or replace function refundd.belongs_elsewhere(value text, first integer, after integer) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    has_uuid constant boolean := value ~ '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}';
    words text[];
    found text;
begin
    -- A telephone number, or a hexadecimal word.
    if substr(value, first - 1, 1) ~ '[a-fA-F+]' or substr(value, after, 1) ~ '[a-fA-F]' then
        return true;
    end if;
    for start in greatest(first - 42, 1) .. first loop
        if has_uuid and start > first - 36 and start + 36 >= after
           and substr(value, start, 36) ~ '^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
        then
            return true;
        end if;
        continue when substr(value, start, 4) !~ '^[A-Za-z]{2}[0-9]{2}$' or substr(value, start - 1, 1) ~ '[0-9A-Za-z]';
        words := string_to_array(substring(substr(value, start, 80) from '^[A-Za-z]{2}[0-9]{2}(?: ?[0-9A-Za-z])*'), ' ');
        for n in 1 .. coalesce(cardinality(words), 0) loop
            found := array_to_string(words[:n], ' ');
            if start + length(found) >= after and refundd.is_iban(replace(found, ' ', '')) then
                return true;
            end if;
        end loop;
    end loop;
    return false;
end $$;

drop function refundd.passes_luhn;

-- As before (migration 0055). Only an answer about an uncertain refund makes it certain; one that is sent again while it is uncertain leaves
-- `sending` with a line; and the address to which it was sent changes only with a send.
create or replace function refundd.moves_are_in_the_journal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage') then
        return null;
    end if;
    if (old.uncertain_at is not null and new.uncertain_at is null
        and not (old.state in ('unknown', 'accepted') and new.state in ('ready', 'failed')))
       or (new.first_sent_at is distinct from old.first_sent_at
           and not (old.first_sent_at is null and old.state <> 'sending' and new.state = 'sending')
           and not (new.first_sent_at is null and old.state = 'sending' and new.state <> 'sending' and new.uncertain_at is null)) then
        raise exception 'refund % may have been executed since %, and no update changes that', old.id, coalesce(old.uncertain_at, old.first_sent_at, new.first_sent_at)
            using errcode = 'RD006', hint = 'A decision may: `refundd review settle`, or POST /v1/review.';
    end if;
    if (new.reason is distinct from old.reason
        and (new.reason like 'decided by %' or new.reason like 'cancelled by %' or new.reason like 'moved by %'))
       or (old.state = 'ready' and new.state = 'cancelled') then
        raise exception 'what a person does with refund % is written by refundd.decide, refundd.cancel and refundd.move alone', old.id
            using errcode = 'RD006', hint = 'They write the journal and the event, too. The commands are `refundd review settle`, `refundd cancel` and `refundd move`.';
    end if;
    -- An inquiry goes to the first address that is asked at all, if the refund was sent where nobody is asked.
    if new.sent_to is distinct from old.sent_to and new.state <> 'ready'
       and not (new.state = 'sending' and old.state <> 'sending' and old.uncertain_at is null)
       and not (new.state = old.state and exists (select from refundd.addresses was join refundd.addresses here using (channel, endpoint)
                                                   where was.address = old.sent_to and was.inquiry = '' and here.address = new.sent_to)) then
        raise exception 'refund % may have been sent to its address, and no update names another', old.id
            using errcode = 'RD006', hint = 'A decision may: `refundd review settle`, or POST /v1/review.';
    end if;
    if not (old.state = 'sending' and (new.state in ('ready', 'unknown', 'review') or (old.uncertain_at is not null and new.state <> 'sending')) or old.state in ('unknown', 'accepted') and new.state not in (old.state, 'sending'))
       or exists (select from refundd.attempts a
                   where a.refund_id = new.id and a.finished_at = now() and a.lease_epoch = old.lease_epoch
                     -- A node of an older version names the state that it wrote.
                     and (a.moved_to = new.state or (new.state = 'review' and old.state = 'sending' and a.moved_to = 'unknown'))
                     and a.kind = any (case when old.state = 'sending' then array['send']
                                            when new.state = 'review' then array['inquiry', 'recovery'] else array['inquiry'] end)) then
        return null;
    end if;
    if old.state = 'sending' and new.state in ('ready', 'unknown', 'review') then
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        values (new.id, new.channel, 'send', old.attempts, old.lease_epoch, coalesce(old.lease_node, session_user), 'not_executed', new.state, 'taken_back',
                format('the role %s took the claim back and named no outcome', session_user));
        return null;
    end if;
    raise exception 'refund % may have been executed, and moves from % to % only with a line in the journal', old.id, old.state, new.state
        using errcode = 'RD006', hint = 'Decide with `refundd review settle`, or POST /v1/review.';
end $$;

create or replace trigger refunds_move_with_a_line after update on refundd.refunds
    for each row when (not (new.reason is null and new.uncertain_at is not distinct from old.uncertain_at
                            and case when old.state = 'sending' then new.state not in ('ready', 'unknown', 'review') and old.uncertain_at is null
                                          and new.first_sent_at is not distinct from old.first_sent_at and new.sent_to is not distinct from old.sent_to
                                     else new.state = 'sending' and (old.first_sent_at is null or new.first_sent_at is not distinct from old.first_sent_at)
                                          and (old.uncertain_at is null or new.sent_to is not distinct from old.sent_to) end))
    execute function refundd.moves_are_in_the_journal();

-- As before (migration 0040), but the lock is one that needs the right to write.
create or replace function refundd.move(refunds bigint[], from_channel text, to_channel text, why text, who text) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    target refundd.channels%rowtype;
    able   bigint[];
    room   bigint;
begin
    perform refundd.people_give_reasons('a move', why, who);
    if from_channel = to_channel then
        raise exception 'channel "%" is both ends of a move', to_channel
            using errcode = 'invalid_parameter_value', hint = 'Name another channel to move to.';
    end if;
    select * into target from refundd.channels c where c.channel = to_channel;
    if not found or target.retired_at is not null then
        raise exception 'channel "%" is run by no node', to_channel
            using errcode = 'RD004', hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].';
    end if;
    -- Before the channel's row is locked: other changes of the channel wait for that.
    able := array(select r.id from refundd.refunds r
                   where r.id = any(refunds) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
                     and refundd.why_it_stays(r, from_channel, target) is null);
    if target.max_backlog is not null then
        -- Of two moves to one channel the second counts what the first one has moved.
        perform from refundd.channels c where c.channel = to_channel for no key update;
        room := refundd.backlog_room(to_channel);
    end if;
    return query
    with picked as materialized (
        -- In the order of ids, so that two moves never wait for each other. A refund that a node claims meanwhile stays.
        select r.id from refundd.refunds r
         where r.id = any(able) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
           -- What was leased meanwhile may have been sent.
           and (r.lease_epoch = 0 or refundd.why_it_stays(r, from_channel, target) is null)
         order by r.id limit room for no key update
    ), moved as (
        update refundd.refunds r
           set channel = to_channel, saved_channel = coalesce(r.saved_channel, r.channel),
               -- Another bank knows nothing of the key, and this one may come back to it: no two banks see one key.
               request_id = gen_random_uuid(), version = r.version + 1,
               -- The wait for a retry, and the count of sends, were those of the old channel.
               attempts = 0, due_at = case when r.lease_epoch > 0 then least(r.due_at, now()) else r.due_at end,
               reason = 'moved by ' || who || ': ' || why
         where r.id = any(array(select p.id from picked p)) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
        returning r.*
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select m.id, line.channel, 'manual', m.version - 1, m.lease_epoch, who, 'decided', 'ready', line.code, left(line.text, 500)
          from moved m
         cross join (values (1, from_channel, 'moved_out', 'to ' || to_channel || ': ' || why),
                            (2, to_channel, 'moved_in', 'from ' || from_channel || ': ' || why)) as line (nth, channel, code, text)
         order by m.id, line.nth
    )
    select * from moved;
end $$;

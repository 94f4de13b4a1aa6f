-- What a setting of a producer's session let pass, and what a stolen password of a node could leave behind.

-- A session may switch `standard_conforming_strings` off. Then functions that are not bound to their parsed body read '\.' as '.', any
-- character. Nearly every card number without separators was a decimal fraction, and passed. As before (migration 0058), without a backslash.
-- The ranges of characters in refundd.refunds_are_what_http_takes mean the same in both modes.
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
                continue when number ~ '^[0-9]+[^0-9]*[.][0-9]+$'
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

-- As before (migration 0015), without a backslash. In such a session the function said that nothing of the journal was dropped.
create or replace function refundd.attempts_since() returns timestamptz
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when bool_and(bound.first is not null) then min(bound.first) end
      from refundd.spans('attempts') s
      join pg_class c on c.oid = to_regclass(format('refundd.%I', s.name)),
           lateral (select substring(pg_get_expr(c.relpartbound, c.oid) from '^FOR VALUES FROM [(]''([^'']+)''[)]')::timestamptz as first) bound
$$;

-- Triggers write an event when a suspension ends. An update of its channel or its source ended it without one. refundd updates neither.
create or replace function refundd.suspensions_are_never_renamed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'the suspension of "%" by % keeps its channel and its source', old.channel, old.source
        using errcode = 'RD002', hint = 'End it with `refundd resume`. What suspends another channel is a row of its own.';
end $$;

create or replace trigger suspensions_are_never_renamed before update of channel, source on refundd.suspensions
    for each row when ((old.channel, old.source) is distinct from (new.channel, new.source))
    execute function refundd.suspensions_are_never_renamed();

-- A node that has reserved a probe sends although the breaker suspends the channel. A reservation without an end was an end of the breaker
-- without an event. The longest `probe` of a breaker is 24 h. The hour more is for a clock that is set back between now() and this look.
create or replace function refundd.probes_are_short() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.probe_until > clock_timestamp() + interval '25 hours' then
        raise exception 'a probe of channel "%" is reserved until %', new.channel, new.probe_until
            using errcode = 'check_violation', hint = 'A reservation lasts for the `probe` of the breaker, at most 24 hours.',
                  schema = 'refundd', table = 'suspensions', column = 'probe_until', constraint = 'suspensions_probes_are_short';
    end if;
    return new;
end $$;

create or replace trigger suspensions_probes_are_short before insert or update of probe_until on refundd.suspensions
    for each row when (new.probe_until is not null)
    execute function refundd.probes_are_short();

-- One time in these columns that no program can read, such as infinity, made every node fail to read all suspensions. The bounds are those
-- of refunds_times_can_be_told. The constraints go first, so that this migration has its locks before it looks at rows.
alter table refundd.channels drop constraint if exists channels_times_can_be_told;
alter table refundd.suspensions drop constraint if exists suspensions_times_can_be_told;

-- An end that never comes is no end. An end of long ago has come. The end of a wait that a bank asked for comes within 24 h, as always.
update refundd.channels set pause_until = case when pause_until < now() then now() end
 where not (pause_until >= timestamptz '0001-01-01 00:00:00+00' and pause_until < timestamptz '9999-01-01 00:00:00+00');
update refundd.channels set cool_until = case when cool_until < now() then now() else now() + interval '24 hours' end
 where not (cool_until >= timestamptz '0001-01-01 00:00:00+00' and cool_until < timestamptz '9999-01-01 00:00:00+00');
update refundd.channels set slow_since = now()
 where not (slow_since >= timestamptz '0001-01-01 00:00:00+00' and slow_since < timestamptz '9999-01-01 00:00:00+00');
-- A pause that begins anew has an end of its own (migration 0037), so such a pause loses its end.
update refundd.channels set paused_at = now()
 where not (paused_at >= timestamptz '0001-01-01 00:00:00+00' and paused_at < timestamptz '9999-01-01 00:00:00+00');
update refundd.suspensions set until = case when until < now() then now() end
 where not (until >= timestamptz '0001-01-01 00:00:00+00' and until < timestamptz '9999-01-01 00:00:00+00');
update refundd.suspensions set since = now()
 where not (since >= timestamptz '0001-01-01 00:00:00+00' and since < timestamptz '9999-01-01 00:00:00+00');
update refundd.suspensions set probe_at = now()
 where not (probe_at >= timestamptz '0001-01-01 00:00:00+00' and probe_at < timestamptz '9999-01-01 00:00:00+00');
update refundd.suspensions set probe_until = null
 where not (probe_until >= timestamptz '0001-01-01 00:00:00+00' and probe_until < timestamptz '9999-01-01 00:00:00+00');

alter table refundd.channels
    add constraint channels_times_can_be_told check (
        paused_at >= timestamptz '0001-01-01 00:00:00+00' and paused_at < timestamptz '9999-01-01 00:00:00+00'
        and pause_until >= timestamptz '0001-01-01 00:00:00+00' and pause_until < timestamptz '9999-01-01 00:00:00+00'
        and cool_until >= timestamptz '0001-01-01 00:00:00+00' and cool_until < timestamptz '9999-01-01 00:00:00+00'
        and slow_since >= timestamptz '0001-01-01 00:00:00+00' and slow_since < timestamptz '9999-01-01 00:00:00+00') not valid;
alter table refundd.suspensions
    add constraint suspensions_times_can_be_told check (
        since >= timestamptz '0001-01-01 00:00:00+00' and since < timestamptz '9999-01-01 00:00:00+00'
        and until >= timestamptz '0001-01-01 00:00:00+00' and until < timestamptz '9999-01-01 00:00:00+00'
        and probe_at >= timestamptz '0001-01-01 00:00:00+00' and probe_at < timestamptz '9999-01-01 00:00:00+00'
        and probe_until >= timestamptz '0001-01-01 00:00:00+00' and probe_until < timestamptz '9999-01-01 00:00:00+00') not valid;

-- A forged step of the clock stayed after the password was changed. It could make every period endless, also those that begin later, and
-- take the last number, so that no further step could be written. Triggers, and no constraints: rows that are there stay as they are.
-- A machine without a battery begins in 1970, and a wrong era of NTP is 136 years away. So a true step is below 200 years.
create or replace function refundd.clock_steps_are_possible() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    -- Months and days have several lengths: such an interval compares as one length, and moves a time by another one.
    seconds constant numeric := extract(epoch from new.step_by);
    newest  constant bigint := coalesce((select max(s.step) from refundd.clock_steps s), 0);
    field   text;
    law     text;
    advice  text;
begin
    if abs(seconds) > 200 * 365.25 * 86400 then
        field := 'step_by'; law := 'clock_steps_are_below_200_years';
        advice := 'Give the step of the clock, at most 200 years.';
    elsif not isfinite(new.before)
          or new.before > clock_timestamp() + greatest(-seconds, 0) * interval '1 second' + interval '1 minute' then
        field := 'before'; law := 'clock_steps_have_been';
        advice := 'Give the time of the step on the clock before it, not a later one.';
    elsif new.step > newest + 1 then
        field := 'step'; law := 'clock_steps_have_no_gaps';
        advice := format('Give the next number, %s.', newest + 1);
    end if;
    if law is not null then
        raise exception 'a step of the clock cannot have this value in "%"', field
            using errcode = 'check_violation', hint = advice, schema = 'refundd', table = 'clock_steps', column = field, constraint = law;
    end if;
    new.step_by := make_interval(secs => seconds::double precision);
    return new;
end $$;

create or replace trigger clock_steps_are_possible before insert on refundd.clock_steps
    for each row execute function refundd.clock_steps_are_possible();

-- A node that starts writes a step if the note of Redis's clock differs from what it sees. A forged note must not make it write one that
-- the trigger above refuses. The note is cut, and not refused: refundd writes it together with a step, and the step must be kept.
create or replace function refundd.clock_notes_are_possible() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    most constant numeric := 100 * 365.25 * 86400;
begin
    new.redis_ahead := make_interval(secs => greatest(-most, least(most, extract(epoch from new.redis_ahead)))::double precision);
    return new;
end $$;

create or replace trigger clock_notes_are_possible before insert or update of redis_ahead on refundd.clock
    for each row when (new.redis_ahead is not null)
    execute function refundd.clock_notes_are_possible();
-- Cuts the note that is there.
update refundd.clock set redis_ahead = redis_ahead;

comment on column refundd.clock_steps.step_by is 'How far the clock went too far; negative where it was set back. At most 200 years.';
comment on column refundd.clock.redis_ahead is 'How far Redis''s clock was ahead of Postgres''s, cut at 100 years.';

-- A time in the future here outlived the change of the password, too: refunds that were sent to an old address were not shown to a person,
-- and an infinite time, also one of the past, stopped all publishing. Nodes write now(). After a true step back these times lie ahead, and stay as they are.
update refundd.channels set published_at = least(published_at, now()), address_since = least(address_since, now())
 where published_at > now() + interval '1 day' or address_since > now() + interval '1 day';
update refundd.channels set published_at = now() where published_at = '-infinity';
update refundd.channels set address_since = now() where address_since = '-infinity';

create or replace function refundd.channels_are_published_now() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    wrong text;
begin
    if tg_op = 'INSERT' or new.published_at is distinct from old.published_at then
        wrong := case when new.published_at > clock_timestamp() + interval '1 minute' or not isfinite(new.published_at) then 'published_at' end;
    end if;
    if wrong is null and (tg_op = 'INSERT' or new.address_since is distinct from old.address_since) then
        wrong := case when new.address_since > clock_timestamp() + interval '1 minute' or not isfinite(new.address_since) then 'address_since' end;
    end if;
    if wrong is not null then
        raise exception 'a channel cannot have this time in "%"', wrong
            using errcode = 'check_violation', hint = 'Give now().',
                  schema = 'refundd', table = 'channels', column = wrong, constraint = 'channels_are_published_now';
    end if;
    return new;
end $$;

create or replace trigger channels_are_published_now before insert or update on refundd.channels
    for each row execute function refundd.channels_are_published_now();

revoke execute on function refundd.channels_are_published_now, refundd.suspensions_are_never_renamed, refundd.probes_are_short, refundd.clock_steps_are_possible,
    refundd.clock_notes_are_possible from public;

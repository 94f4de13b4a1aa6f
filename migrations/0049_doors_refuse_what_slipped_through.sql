-- What slipped through the doors. Card numbers passed with two separators, or with a colon or a comma, between their groups. Characters
-- passed that nobody sees, such as the soft hyphen, line separators, tags and variation selectors. And `max_backlog` did not stop one
-- insert of very many rows, because nodes notice a full channel only later.

create or replace function refundd.refused_character(value text) returns text
    language sql immutable strict parallel safe
return (select 'U+' || lpad(found.code, greatest(4, length(found.code)), '0')
          from (select upper(to_hex(ascii(substring(value from
                   '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]')))) as code) found);

-- As before (migration 0032), and groups of digits may have up to three separators between them, of any kind. Where a group has fewer
-- than four digits, or more than six, only one separator may stand there, and no colon, comma or semicolon: else times, lists
-- and thousands would look like cards. A number with one of these three signs is no card if a list goes on before or after it.
create or replace function refundd.holds_card_number(value text) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    seen   integer := 0;
    run    text;
    blocks text[];
    gaps   text[]; -- gaps[n] stands before blocks[n]
    digits text;
    first  integer;
    after  integer;
begin
    loop
        run := substring(substr(value, seen + 1) from '[0-9](?:[^0-9A-Za-z]{0,3}[0-9]){12,}');
        if run is null then
            return false;
        end if;
        first := seen + strpos(substr(value, seen + 1), run);
        seen := first - 1 + length(run);
        blocks := regexp_split_to_array(run, '[^0-9]+');
        gaps := regexp_split_to_array(run, '[0-9]+');
        for a in 1 .. cardinality(blocks) loop
            first := first + length(gaps[a]);
            after := first;
            digits := '';
            for b in a .. cardinality(blocks) loop
                if b > a then
                    exit when not (gaps[b] ~ '^[^:,;]$' or (length(blocks[b - 1]) between 4 and 6 and length(blocks[b]) between 3 and 6));
                    after := after + length(gaps[b]);
                end if;
                digits := digits || blocks[b];
                after := after + length(blocks[b]);
                exit when length(digits) > 19;
                continue when length(digits) < 13;
                if digits ~ '^(?:4(?:.{12}|.{15}|.{18})|5[1-5].{14}|(?:222[1-9]|22[3-9].|2[3-6]..|27[01].|2720).{12}|3[47].{13}|30[0-5].{11,16}|3[689].{12,17}|35.{14,17}|(?:50|5[6-9]|6.).{11,17})$'
                   and refundd.passes_luhn(digits)
                   -- A decimal fraction.
                   and not (b = a + 1 and substr(value, after - length(blocks[b]) - 1, 1) = '.')
                   -- An article number, EAN-13.
                   and not (a = b and length(digits) = 13
                            and (select sum(d.digit::integer * case when d.nth % 2 = 1 then 1 else 3 end) % 10 = 0
                                   from regexp_split_to_table(digits, '') with ordinality as d (digit, nth)))
                   -- A part of a list.
                   and not (substr(value, first, after - first) ~ '[:,;]'
                            and (substr(value, after, 4) ~ '^[^0-9A-Za-z]*[:,;][^0-9A-Za-z]*[0-9]'
                                 or substr(value, greatest(first - 4, 1), least(4, first - 1)) ~ '[0-9][^0-9A-Za-z]*[:,;][^0-9A-Za-z]*$'))
                   and not refundd.belongs_elsewhere(value, first, after)
                then
                    return true;
                end if;
            end loop;
            first := first + length(blocks[a]);
        end loop;
    end loop;
end $$;

-- As before (migration 0032), but for the two patterns of the first look.
create or replace function refundd.refunds_are_what_http_takes() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    one    record;
    field  text;
    law    text;
    said   text;
    advice text;
    are_cards boolean;
begin
    select s.channel, s.refund_ref, s.payment_ref, s.currency, s.payload, s.due_at, s.deadline_at into one
      from saved s
     -- One look at the references first, for a character or for 13 digits: nearly all have neither.
     where ((s.refund_ref || ' x ' || s.payment_ref) ~ '[0-9](?:[^0-9A-Za-z]*[0-9]){12}|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]'
            and (refundd.refused_character(s.refund_ref) is not null or refundd.refused_character(s.payment_ref) is not null
                 or ((refundd.holds_card_number(s.refund_ref) or refundd.holds_card_number(s.payment_ref))
                     and not refundd.accepts_card_numbers(s.channel))))
        or (s.payload is not null and refundd.holds_card_number(s.payload) and not refundd.accepts_card_numbers(s.channel))
        or not refundd.is_currency(s.currency)
        -- A refund without due_at is due now. A deadline that is over by then fails it.
        or (s.deadline_at <= s.due_at and s.due_at <> now())
     limit 1;
    if not found then
        return null;
    end if;
    are_cards := not refundd.accepts_card_numbers(one.channel);
    -- Neither the text nor the number is repeated: a terminal would obey the one, and a log would keep the other.
    if refundd.refused_character(one.refund_ref) is not null then
        field := 'refund_ref'; law := 'refunds_ref_is_plain_text';
    elsif refundd.refused_character(one.payment_ref) is not null then
        field := 'payment_ref'; law := 'refunds_payment_ref_is_plain_text';
    elsif are_cards and refundd.holds_card_number(one.refund_ref) then
        field := 'refund_ref'; law := 'refunds_ref_holds_no_card_number';
    elsif are_cards and refundd.holds_card_number(one.payment_ref) then
        field := 'payment_ref'; law := 'refunds_payment_ref_holds_no_card_number';
    elsif are_cards and refundd.holds_card_number(one.payload) then
        field := 'payload'; law := 'refunds_payload_holds_no_card_number';
    elsif not refundd.is_currency(one.currency) then
        field := 'currency'; law := 'refunds_currency_is_of_iso_4217';
        said := format('is "%s", which is not a currency', one.currency);
        advice := 'Give a code of ISO 4217 in capitals, such as EUR.';
    else
        field := 'deadline_at'; law := 'refunds_deadline_is_after_due_at';
        said := format('is %s, and must be after due_at, which is %s', one.deadline_at, one.due_at);
        advice := 'Give a later deadline_at, or an earlier due_at.';
    end if;
    if law like '%plain_text' then
        said := 'holds ' || refundd.refused_character(case field when 'refund_ref' then one.refund_ref else one.payment_ref end);
        advice := 'Leave it out: it is a control character, or another character that nobody sees.';
    elsif law like '%card_number' then
        said := 'holds a card number';
        advice := 'refundd keeps none: remove it, or, if it is no card number, set card_numbers = "accepted" for the channel.';
    end if;
    raise exception '% %', field, said
        using errcode = 'check_violation', hint = advice, schema = 'refundd', table = 'refunds', column = field, constraint = law;
end $$;

-- As before (migration 0040), but for the pattern of the first look.
create or replace function refundd.why_it_stays(r refundd.refunds, from_channel text, target refundd.channels) returns text
    language sql stable
return case
    when r.channel <> from_channel then 'other_channel'
    when r.state <> 'ready' then r.state
    -- A refund that was never leased was never sent.
    when r.first_sent_at is not null or (r.lease_epoch > 0 and refundd.journal_has_a_send(r.id)) then 'sent_before'
    when (target).channel is null then null
    when r.deadline_at <= now() then 'deadline_passed'
    when (target).settings ? 'max_amount_minor'
         and r.amount_minor > coalesce(((target).settings -> 'max_amount_minor' ->> r.currency)::bigint, -1) then 'amount_too_high'
    -- One look for 13 digits first: nearly all references have none.
    when (r.payload is not null or (r.refund_ref || ' x ' || r.payment_ref) ~ '[0-9](?:[^0-9A-Za-z]*[0-9]){12}')
         and (target).settings ->> 'card_numbers' is distinct from 'accepted' and refundd.refund_holds_card_number(r) then 'card_number'
end;

-- As before (migration 0035), and one statement of a role other than nodes brings no more rows than the bound of its channel.
create or replace function refundd.channel_is_one_that_nodes_run() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stranger text;
    bound    bigint;
    is_known boolean;
    has_room boolean;
    brought  bigint;
    too_high record;
begin
    select named.channel, c.max_backlog, c.channel is not null, c.full_since is null, named.n into stranger, bound, is_known, has_room, brought
      from (select s.channel, count(*) as n from saved s group by s.channel) named
      left join refundd.channels c on c.channel = named.channel
     where c.channel is null or c.full_since is not null or named.n > c.max_backlog or c.settings ? 'max_amount_minor'
     order by c.channel is not null, c.full_since is null, (named.n > c.max_backlog) is not true
     limit 1;
    if not found then
        return null;
    end if;
    if not is_known then
        raise exception 'insert on table "refunds" violates foreign key constraint "refunds_channel_is_one_that_nodes_run"'
            using errcode = 'foreign_key_violation', detail = format('No node ever ran the channel "%s".', stranger),
                  hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].',
                  schema = 'refundd', table = 'refunds', constraint = 'refunds_channel_is_one_that_nodes_run';
    end if;
    if has_column_privilege(session_user, 'refundd.channels', 'full_since', 'update') then
        return null;
    end if;
    if not has_room then
        raise exception 'channel "%" already has max_backlog = % refunds waiting', stranger, bound
            using errcode = 'RD005', hint = 'Try again later, or raise max_backlog in the channel''s configuration.';
    end if;
    if brought > bound then
        raise exception 'channel "%" takes max_backlog = % refunds, and this statement brings %', stranger, bound, brought
            using errcode = 'RD005', hint = 'Save fewer refunds in one statement, or raise max_backlog in the channel''s configuration.';
    end if;
    select s.channel, s.currency, s.amount_minor, c.settings -> 'max_amount_minor' ->> s.currency as most into too_high
      from saved s
      join refundd.channels c on c.channel = s.channel
     where not refundd.amounts_are_within_bounds(c.settings -> 'max_amount_minor', s.currency, s.amount_minor)
     limit 1;
    if found then
        raise exception 'amount_minor is %, and channel "%" takes %', too_high.amount_minor, too_high.channel,
            case when too_high.most is null then 'no ' || too_high.currency else 'at most ' || too_high.most || ' of ' || too_high.currency end
            using errcode = 'check_violation', hint = 'Give a lower amount, or raise max_amount_minor in the channel''s configuration.',
                  schema = 'refundd', table = 'refunds', column = 'amount_minor', constraint = 'refunds_amount_is_within_the_channels_bound';
    end if;
    return null;
end $$;

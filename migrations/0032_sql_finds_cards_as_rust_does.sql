-- Rust and SQL judged some texts differently. SQL took letters of other scripts for letters or for separators, as the
-- database's locale says. It cut UUIDs and IBANs out of a text before it looked, and so hid digits beside them. The function
-- now goes the way of src/refund/card.rs: it finds digits first, and then looks where they belong. tests/it/card_laws.rs
-- compares the two on random texts. The Arabic letter mark, U+061C, turns the direction of text and was taken.

create function refundd.belongs_elsewhere(value text, first integer, after integer) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    words text[];
    found text;
begin
    -- A telephone number, or a hexadecimal word.
    if substr(value, first - 1, 1) ~ '[a-fA-F+]' or substr(value, after, 1) ~ '[a-fA-F]' then
        return true;
    end if;
    for start in greatest(first - 42, 1) .. first loop
        if start > first - 36 and start + 36 >= after
           and substr(value, start, 36) ~ '^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
        then
            return true;
        end if;
        continue when substr(value, start - 1, 1) ~ '[0-9A-Za-z]';
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

comment on function refundd.belongs_elsewhere is 'Whether the digits from one character up to before another belong to a UUID, a hexadecimal word, an IBAN or a telephone number.';

revoke execute on function refundd.belongs_elsewhere from public;

-- Whether a text holds a card number: 13 to 19 digits with at most one separator between two of them, which begin and are
-- as long as the numbers of a card scheme, and pass the check of Luhn.
create or replace function refundd.holds_card_number(value text) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    seen   integer := 0;
    run    text;
    blocks text[];
    digits text;
    first  integer;
    after  integer;
begin
    loop
        run := substring(substr(value, seen + 1) from '[0-9](?:[^0-9A-Za-z:,;]?[0-9]){12,}');
        if run is null then
            return false;
        end if;
        first := seen + strpos(substr(value, seen + 1), run);
        seen := first - 1 + length(run);
        blocks := regexp_split_to_array(run, '[^0-9]');
        for a in 1 .. cardinality(blocks) loop
            digits := '';
            for b in a .. cardinality(blocks) loop
                digits := digits || blocks[b];
                exit when length(digits) > 19;
                continue when length(digits) < 13;
                after := first + length(digits) + b - a;
                if digits ~ '^(?:4(?:.{12}|.{15}|.{18})|5[1-5].{14}|(?:222[1-9]|22[3-9].|2[3-6]..|27[01].|2720).{12}|3[47].{13}|30[0-5].{11,16}|3[689].{12,17}|35.{14,17}|(?:50|5[6-9]|6.).{11,17})$'
                   and refundd.passes_luhn(digits)
                   -- A decimal fraction.
                   and not (b = a + 1 and substr(value, after - length(blocks[b]) - 1, 1) = '.')
                   -- An article number, EAN-13.
                   and not (a = b and length(digits) = 13
                            and (select sum(d.digit::integer * case when d.nth % 2 = 1 then 1 else 3 end) % 10 = 0
                                   from regexp_split_to_table(digits, '') with ordinality as d (digit, nth)))
                   and not refundd.belongs_elsewhere(value, first, after)
                then
                    return true;
                end if;
            end loop;
            first := first + length(blocks[a]) + 1;
        end loop;
    end loop;
end $$;

create or replace function refundd.refused_character(value text) returns text
    language sql immutable strict parallel safe
return 'U+' || lpad(upper(to_hex(ascii(substring(value from
    '[\u0001-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]')))), 4, '0');

-- As before, but for the two patterns of the first look.
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
     where ((s.refund_ref || ' # ' || s.payment_ref) ~ '[0-9](?:[^0-9A-Za-z:,;]?[0-9]){12}|[\u0001-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]'
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

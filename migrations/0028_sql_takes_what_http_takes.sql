-- A plain insert took what HTTP refuses: control characters in references, the currency ZZZ, a card number for a payment.
-- The laws of src/refund/draft.rs now hold for every insert. They are looked at once for each statement, like a refund's
-- channel, and by no CHECK constraint: Postgres checks those at every update, so that a refund that was saved before this
-- migration could not be claimed any more. What is owed never changes, so the insert is the only door.
-- Each error has the code and the form of a CHECK constraint: 23514, the constraint's name, and the column.

-- The two checks of numbers, as src/refund/card.rs has them.
create function refundd.passes_luhn(digits text) returns boolean
    language sql immutable strict parallel safe
return (select sum(case when d.nth % 2 = 1 then d.digit::integer
                        else d.digit::integer * 2 - case when d.digit >= '5' then 9 else 0 end end) % 10 = 0
          from regexp_split_to_table(reverse(digits), '') with ordinality as d (digit, nth));

create function refundd.is_iban(value text) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    rest integer := 0;
    mark text;
begin
    if length(value) not between 15 and 34 then
        return false;
    end if;
    foreach mark in array regexp_split_to_array(upper(substr(value, 5) || left(value, 4)), '') loop
        rest := case when mark ~ '[0-9]' then rest * 10 + mark::integer else rest * 100 + ascii(mark) - 55 end % 97;
    end loop;
    return rest = 1;
end $$;

-- Whether a text holds a card number: 13 to 19 digits with at most one separator between two of them, which begin and are
-- as long as the numbers of a card scheme, and pass the check of Luhn. In a text of several blocks of digits, such as
-- `2024-4111 1111 1111 1111`, each block may begin one and each may end it. UUIDs, IBANs, digits that touch one of a-f,
-- telephone numbers with their +, fractions, and article numbers with their own check digit are left alone.
-- src/refund/card.rs is the same law.
create function refundd.holds_card_number(value text) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    rest   text;
    found  text;
    words  text[];
    before text;
    run    text;
    blocks text[];
    between_ text[];
    digits text;
begin
    if value !~ '[0-9](?:[^[:alnum:]:,;]?[0-9]){12}' then
        return false;
    end if;
    rest := regexp_replace(value, '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}', ',', 'g');
    for found in
        select m[1] from regexp_matches(rest, '(?<![[:alnum:]])([A-Za-z]{2}[0-9]{2}(?: ?[0-9A-Za-z]){11,30})(?![0-9A-Za-z])', 'g') m
    loop
        words := string_to_array(found, ' ');
        for n in reverse cardinality(words) .. 1 loop
            if refundd.is_iban(array_to_string(words[:n], '')) then
                rest := replace(rest, array_to_string(words[:n], ' '), ',');
                exit;
            end if;
        end loop;
    end loop;
    loop
        run := substring(rest from '[0-9]+(?:[^[:alnum:]:,;][0-9]+)*');
        if run is null then
            return false;
        end if;
        before := right(left(rest, strpos(rest, run) - 1), 1);
        rest := substr(rest, strpos(rest, run) + length(run));
        blocks := regexp_split_to_array(run, '[^0-9]');
        -- What stands before each block, and after the last.
        between_ := before || (regexp_split_to_array(run, '[0-9]+'))[2:cardinality(blocks)] || left(rest, 1);
        for a in 1 .. cardinality(blocks) loop
            digits := '';
            for b in a .. cardinality(blocks) loop
                digits := digits || blocks[b];
                exit when length(digits) > 19;
                if digits ~ '^(?:4(?:.{12}|.{15}|.{18})|5[1-5].{14}|(?:222[1-9]|22[3-9].|2[3-6]..|27[01].|2720).{12}|3[47].{13}|30[0-5].{11,16}|3[689].{12,17}|35.{14,17}|(?:50|5[6-9]|6.).{11,17})$'
                   and refundd.passes_luhn(digits)
                   and between_[a] !~ '[a-fA-F+]' and between_[b + 1] !~ '[a-fA-F]'
                   and not (b = a + 1 and between_[b] = '.')
                   and not (a = b and length(digits) = 13
                            and (select sum(d.digit::integer * case when d.nth % 2 = 1 then 1 else 3 end) % 10 = 0
                                   from regexp_split_to_table(digits, '') with ordinality as d (digit, nth)))
                then
                    return true;
                end if;
            end loop;
        end loop;
    end loop;
end $$;

comment on function refundd.holds_card_number(text) is 'Whether a text holds what may be the number of a payment card.';

-- In a payload: a text, a key or a whole number.
create function refundd.holds_card_number(value jsonb) returns boolean
language plpgsql immutable strict parallel safe as $$
begin
    if length(value::text) - length(translate(value::text, '0123456789', '')) < 13 then
        return false;
    end if;
    return exists (
        select from jsonb_path_query(value, 'strict $.**') part
         where case jsonb_typeof(part)
                   when 'string' then refundd.holds_card_number(part #>> '{}')
                   when 'number' then part::numeric % 1 = 0 and refundd.holds_card_number(abs(trunc(part::numeric))::text)
                   when 'object' then exists (select from jsonb_object_keys(part) key where refundd.holds_card_number(key))
               end);
end $$;

comment on function refundd.holds_card_number(jsonb) is 'Whether a text, a key or a whole number in a payload holds what may be the number of a payment card.';

-- Control characters; U+200B to U+200F, which have no width or turn the direction of text; bidirectional controls; and the
-- other characters of no width. They make one reference look like another.
create function refundd.refused_character(value text) returns text
    language sql immutable strict parallel safe
return 'U+' || lpad(upper(to_hex(ascii(substring(value from
    '[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]')))), 4, '0');

comment on function refundd.refused_character is 'The first character of a reference that no door takes, such as U+202E; null if there is none.';

-- As src/refund/draft/field.rs says; a test holds the two equal. XXX and XTS stand for no currency.
create function refundd.is_currency(code text) returns boolean
    language sql immutable strict parallel safe
return code = any ('{
    AED,AFN,ALL,AMD,AOA,ARS,AUD,AWG,AZN,BAM,BBD,BDT,BGN,BHD,BIF,BMD,BND,BOB,BOV,BRL,BSD,BTN,BWP,BYN,BZD,
    CAD,CDF,CHE,CHF,CHW,CLF,CLP,CNY,COP,COU,CRC,CUC,CUP,CVE,CZK,DJF,DKK,DOP,DZD,EGP,ERN,ETB,EUR,FJD,FKP,
    GBP,GEL,GHS,GIP,GMD,GNF,GTQ,GYD,HKD,HNL,HRK,HTG,HUF,IDR,ILS,INR,IQD,IRR,ISK,JMD,JOD,JPY,KES,KGS,KHR,
    KMF,KPW,KRW,KWD,KYD,KZT,LAK,LBP,LKR,LRD,LSL,LYD,MAD,MDL,MGA,MKD,MMK,MNT,MOP,MRU,MUR,MVR,MWK,MXN,MXV,
    MYR,MZN,NAD,NGN,NIO,NOK,NPR,NZD,OMR,PAB,PEN,PGK,PHP,PKR,PLN,PYG,QAR,RON,RSD,RUB,RWF,SAR,SBD,SCR,SDG,
    SEK,SGD,SHP,SLE,SLL,SOS,SRD,SSP,STN,SVC,SYP,SZL,THB,TJS,TMT,TND,TOP,TRY,TTD,TWD,TZS,UAH,UGX,USD,USN,
    UYI,UYU,UYW,UZS,VED,VES,VND,VUV,WST,XAD,XAF,XAG,XAU,XBA,XBB,XBC,XBD,XCD,XCG,XDR,XOF,XPD,XPF,XPT,XSU,
    XUA,YER,ZAR,ZMW,ZWG,ZWL}'::text[]);

comment on function refundd.is_currency is 'Whether a code of ISO 4217 stands for a currency that a bank can pay.';

create function refundd.accepts_card_numbers(of_channel text) returns boolean
    language sql stable parallel safe
return (select c.settings ->> 'card_numbers' is not distinct from 'accepted' from refundd.channels c where c.channel = of_channel);

comment on function refundd.accepts_card_numbers is 'Whether the file of a node says that a channel''s numbers only look like those of cards.';

create function refundd.refunds_are_what_http_takes() returns trigger
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
     where ((s.refund_ref || ' # ' || s.payment_ref) ~ '[0-9](?:[^[:alnum:]:,;]?[0-9]){12}|[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]'
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

revoke execute on function refundd.holds_card_number(text), refundd.holds_card_number(jsonb), refundd.passes_luhn, refundd.is_iban, refundd.accepts_card_numbers,
    refundd.refused_character, refundd.is_currency, refundd.refunds_are_what_http_takes from public;

create trigger refunds_are_what_http_takes after insert on refundd.refunds
    referencing new table as saved
    for each statement execute function refundd.refunds_are_what_http_takes();

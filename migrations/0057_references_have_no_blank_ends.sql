-- References with a blank at an end, and more characters that nobody sees, are refused from now on: a tool cuts the blank off, and then
-- names another refund. What was saved before stays. And a producer whose channels are null is not bound to none, which means all.

-- As before (migration 0049), and the fillers, the annotation controls and the empty Braille pattern; and a blank at an end.
create or replace function refundd.refused_character(value text) returns text
    language sql immutable strict parallel safe
return (select 'U+' || lpad(found.code, greatest(4, length(found.code)), '0')
          from (select upper(to_hex(ascii(substring(value from
                   '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|^[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]|[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]$')))) as code) found);

-- As before (migration 0049), but for the pattern of the first look.
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
     -- One look at the references first, for a character, a blank at an end, or 13 digits: nearly all have none.
     where ((s.refund_ref || ' x ' || s.payment_ref) ~ '[0-9](?:[^0-9A-Za-z]*[0-9]){12}|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|^[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]|[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000] x | x [ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]|[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]$'
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
        advice := 'Leave it out: it is a control character, a blank at an end, or another character that nobody sees.';
    elsif law like '%card_number' then
        said := 'holds a card number';
        advice := 'refundd keeps none: remove it, or, if it is no card number, set card_numbers = "accepted" for the channel.';
    end if;
    raise exception '% %', field, said
        using errcode = 'check_violation', hint = advice, schema = 'refundd', table = 'refunds', column = field, constraint = law;
end $$;

-- As before (migration 0029), and no null.
create or replace function refundd.bind_producer(producer name, channels text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    stranger text;
begin
    if channels is null or array_position(channels, null) is not null then
        raise exception 'the channels of role "%" are null', producer
            using errcode = 'null_value_not_allowed', hint = 'Name its channels; an empty array lets it use all.';
    end if;
    if not exists (select from pg_roles r where r.rolname = producer)
       or not exists (select from pg_roles r where r.rolname = 'refundd_producer')
       or not pg_has_role(producer, 'refundd_producer', 'member') then
        raise exception 'role "%" is no member of refundd_producer', producer
            using errcode = 'invalid_parameter_value',
                  hint = format('Run config/producer-role.sql, and `grant refundd_producer to %I`.', producer);
    end if;
    select c into stranger from unnest(channels) c where not exists (select from refundd.channels k where k.channel = c) limit 1;
    if found then
        raise warning 'no node ever ran the channel "%"', stranger
            using hint = 'The producer may use it when a node runs it. If the name is wrong, bind the producer again.';
    end if;
    perform set_config('lock_timeout', '3s', true);
    delete from refundd.producers p where p.role = producer;
    insert into refundd.producers (role, channel) select distinct producer, c from unnest(channels) c;
    grant execute on function refundd.channels_of_producer to refundd_producer;
    if not exists (select from refundd.producers) then
        alter table refundd.refunds disable row level security;
        return;
    end if;
    if not exists (select from pg_policy p where p.polrelid = 'refundd.refunds'::regclass) then
        create policy roles_use_all_channels on refundd.refunds using (true);
        create policy producers_keep_to_their_channels on refundd.refunds as restrictive to refundd_producer
            using (coalesce(channel = any ((select refundd.channels_of_producer())::text[]), true));
    end if;
    if not (select c.relrowsecurity from pg_class c where c.oid = 'refundd.refunds'::regclass) then
        alter table refundd.refunds enable row level security;
    end if;
end $$;

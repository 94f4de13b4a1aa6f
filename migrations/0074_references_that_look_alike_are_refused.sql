-- Two faults by which one refund could be two, or a repeat a conflict.

-- Two references that differ only in a blank, such as U+0020 and U+00A0, look exactly alike. They were two refunds. From now on, a reference
-- has no blank but U+0020. What was saved before stays: the trigger looks at inserted rows alone, and a repeat inserts none. As before
-- (migration 0057), but for the blanks inside.
create or replace function refundd.refused_character(value text) returns text
    language sql immutable strict parallel safe
return (select 'U+' || lpad(found.code, greatest(4, length(found.code)), '0')
          from (select upper(to_hex(ascii(substring(value from
                   '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]|^ | $')))) as code) found);

-- As before (migration 0057), but for the pattern of the first look and the advice.
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
     where ((s.refund_ref || ' x ' || s.payment_ref) ~ '[0-9](?:[^0-9A-Za-z]*[0-9]){12}|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]|^ |  x | x  | $'
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
        advice := 'Leave it out: it is a control character, a blank that is not U+0020, a blank at an end, or another character that nobody sees.';
    elsif law like '%card_number' then
        said := 'holds a card number';
        advice := 'refundd keeps none: remove it, or, if it is no card number, set card_numbers = "accepted" for the channel.';
    end if;
    raise exception '% %', field, said
        using errcode = 'check_violation', hint = advice, schema = 'refundd', table = 'refunds', column = field, constraint = law;
end $$;

-- JSON null as payload was other content than no payload. HTTP and `refundd import` save no payload for it, so a repeat by another way was a
-- conflict. The rest of the function is as in migration 0072.
create or replace function refundd.enqueue(
    refund_ref text, channel text, payment_ref text, amount_minor bigint, currency text,
    payload jsonb default null, due_at timestamptz default null, deadline_at timestamptz default null,
    out id bigint, out state text, out created boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    lane refundd.channels%rowtype;
    kept refundd.refunds%rowtype;
    mine text[] := refundd.channels_of_producer();
begin
    if enqueue.channel <> all (mine) then
        raise exception 'role "%" may not use channel "%"', session_user, enqueue.channel
            using errcode = 'insufficient_privilege', hint = 'The owner of the schema binds a producer to its channels: refundd.bind_producer().';
    end if;
    select r.* into kept from refundd.refunds r where r.refund_ref = enqueue.refund_ref;
    if not found then
        select c.* into lane from refundd.channels c where c.channel = enqueue.channel;
        if not found or lane.retired_at is not null then
            raise exception 'channel "%" is run by no node', enqueue.channel
                using errcode = 'RD004', hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].';
        end if;
        if lane.full_since is not null then
            raise exception 'channel "%" already has max_backlog = % refunds waiting', enqueue.channel, lane.max_backlog
                using errcode = 'RD005', hint = 'Try again later, or raise max_backlog in the channel''s configuration.';
        end if;
        insert into refundd.refunds as r (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at)
        values (enqueue.refund_ref, enqueue.channel, enqueue.payment_ref, enqueue.amount_minor, enqueue.currency,
                enqueue.payload, coalesce(enqueue.due_at, now()), enqueue.deadline_at)
        on conflict on constraint refunds_ref_is_unique_for_ever do nothing
        returning r.id, r.state into enqueue.id, enqueue.state;
        if found then
            created := true;
            return;
        end if;
        -- Another transaction saved the same ref meanwhile; its row is committed by now.
        select r.* into strict kept from refundd.refunds r where r.refund_ref = enqueue.refund_ref;
    end if;
    -- due_at and deadline_at are wishes about time and may differ on a repeat; what is owed may not.
    if (kept.payment_ref, kept.amount_minor, kept.currency)
        is distinct from (enqueue.payment_ref, enqueue.amount_minor, enqueue.currency)
        or enqueue.channel is distinct from kept.channel and enqueue.channel is distinct from kept.saved_channel
        or nullif(kept.payload, 'null') is distinct from nullif(enqueue.payload, 'null') then
        raise exception 'refund_ref "%" is already taken by % with other content', enqueue.refund_ref,
                case when kept.channel <> all (mine) then 'a refund' else 'refund ' || kept.id end
            using errcode = 'RD001', hint = 'A refund_ref names one refund for ever; use another, or send the same content.',
                  -- Only values that a producer may read are shown.
                  detail = case when kept.channel <> all (mine) then 'It is a refund of a channel that this role may not use.'
                                else 'What differs: ' || concat_ws(', ',
                       case when enqueue.channel is distinct from kept.channel and enqueue.channel is distinct from kept.saved_channel
                            then format('channel (saved %s, sent %s)', kept.channel, enqueue.channel) end,
                       case when kept.payment_ref is distinct from enqueue.payment_ref then 'payment_ref' end,
                       case when kept.amount_minor is distinct from enqueue.amount_minor then 'amount_minor' end,
                       case when kept.currency is distinct from enqueue.currency then 'currency' end,
                       case when nullif(kept.payload, 'null') is distinct from nullif(enqueue.payload, 'null') then 'payload' end) || '.' end;
    end if;
    id := kept.id;
    state := kept.state;
    created := false;
end $$;

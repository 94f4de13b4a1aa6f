-- save: saves the refunds that are not saved yet, in one commit.
-- :refund_ref and the others of `unnest`   one row for each refund; `holds_card` says whether it has a card number
-- :lock_timeout                           the longest wait for a lock, such as 20ms
with requested as (
         -- Of several refunds with one ref, the statement saves the first one that can be saved.
         select a.*, c.channel is not null and c.retired_at is null as runs, c.max_backlog,
                case when law.is_amount_broken then law.most::text end as bounds, law.is_card_broken, law.is_taken,
                row_number() over (partition by a.refund_ref, law.is_taken order by a.nth) = 1 as is_first
           from (select set_config('lock_timeout', :lock_timeout, true)) as patience,
                unnest(:refund_ref::text[], :channel::text[], :payment_ref::text[], :amount_minor::bigint[], :currency::text[],
                       :payload::text[], :due_us::bigint[], :deadline_us::bigint[], :traceparent::text[], :holds_card::boolean[])
              with ordinality as a (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_us, deadline_us, traceparent, holds_card, nth)
                left join refundd.channels c on c.channel = a.channel
                -- What the nodes have published: this node's file may be older, or lack the channel.
                cross join lateral (select c.settings -> 'max_amount_minor' as most,
                                           coalesce(c.settings ? 'max_amount_minor', false)
                                           and a.amount_minor > coalesce((c.settings -> 'max_amount_minor' ->> a.currency)::bigint, -1) as is_amount_broken,
                                           a.holds_card and c.settings ->> 'card_numbers' is distinct from 'accepted' as is_card_broken) as published
                cross join lateral (select published.*, c.channel is not null and c.retired_at is null and c.full_since is null
                                           and not published.is_amount_broken and not published.is_card_broken as is_taken) as law
     ), fresh as (
         insert into refundd.refunds as r
                (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at, traceparent)
         select refund_ref, channel, payment_ref, amount_minor, currency, payload::jsonb,
                coalesce(timestamptz 'epoch' + due_us * interval '1 microsecond', now()),
                timestamptz 'epoch' + deadline_us * interval '1 microsecond', traceparent
           from requested where is_taken and is_first order by nth
             on conflict on constraint refunds_ref_is_unique_for_ever do nothing
         returning
         -- refund_columns.sql stands here
     )
     select a.nth, a.runs, a.max_backlog, a.bounds, a.is_card_broken, r.*
       from requested a left join fresh r on r.refund_ref = a.refund_ref and a.is_first and a.is_taken
      order by a.nth

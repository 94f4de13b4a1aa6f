-- address_reason: why only a person can decide a refund that may have been sent to another address than its channel's
-- present one. Null for other refunds, and where no address of the channel is known.
-- The statement names the refund `u`, with channel and sent_to, and its channel `c`, with address and inquires.
(select 'address_changed: it may have been sent to ' || case when was.endpoint <> here.endpoint then was.endpoint
                else was.endpoint || ' and asked about at ' || was.inquiry end
             || ', and the channel''s bank is at ' || case when was.endpoint <> here.endpoint then here.endpoint
                else here.endpoint || ' and asked at ' || here.inquiry end
             || ' now; ask the first one what became of it, and decide'
   from refundd.addresses was, refundd.addresses here
  where not refundd.is_where_it_was_sent(u.sent_to, c.address, u.channel, c.inquires)
    and was.address = coalesce(u.sent_to, (select min(a.address) from refundd.addresses a where a.channel = u.channel))
    and here.address = c.address)

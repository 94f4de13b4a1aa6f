-- People look for a refund by any of its names: `refundd show` and GET /v1/refunds/find. The refund ref, the id and the bank's
-- reference have indexes already. The request id, which the bank sees, and the payment ref get theirs here.
--
-- Refunds that are `sending` are not in the indexes. They are few, and `refunds_sending` has them; so a refund that goes the plain way
-- writes two entries into each index, and not three.
--
-- Each index is built concurrently: refunds are saved, claimed and settled meanwhile. So each statement runs by itself, outside
-- of a transaction, and the file may be run again after a build that broke off. A build reads the table twice, and waits for
-- transactions that began before it; nobody waits for it, except another build, `vacuum` or change of this table.

create index concurrently if not exists refunds_by_request_id on refundd.refunds (request_id) where state <> 'sending';

create index concurrently if not exists refunds_by_payment_ref on refundd.refunds (payment_ref) where state <> 'sending';

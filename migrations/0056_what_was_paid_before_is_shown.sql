-- Refunds of which migration 0055 would be true already: the bank said that it executed them, and they ended without a payment; or its
-- answer was about another refund, and they may be sent again. A migration of its own, so that no answer comes between the old
-- functions and this look. What is being sent now goes to a person in place of `ready` and `failed`. Of an ended refund about which a person decided after that answer, the person knew it.
do $$
declare
    r refundd.refunds;
begin
    for r in
        update refundd.refunds f
           set version = f.version + 1, state = 'review', settled_at = null,
               reason = 'said_paid: an answer that came late says that the bank has this refund'
         where f.lease_epoch > 0
           and case when f.state in ('failed', 'cancelled')
                    then exists (select from refundd.attempts a
                                  where a.refund_id = f.id and a.outcome = 'succeeded' and a.kind in ('send', 'inquiry')
                                    and a.id > coalesce((select max(m.id) from refundd.attempts m
                                                          where m.refund_id = f.id and m.code in ('decided', 'confirmed_not_executed') and m.moved_to is not null), 0))
                    when f.state = 'ready' or (f.state = 'unknown' and f.inquire_at is null) then refundd.was_said_paid(f.id, true)
                    else false end
         returning f.*
    loop
        perform refundd.recovery_moved(r, 'said_paid');
    end loop;
end $$;

update refundd.refunds f set uncertain_at = clock_timestamp()
 where f.state = 'sending' and f.uncertain_at is null and refundd.was_said_paid(f.id, true);

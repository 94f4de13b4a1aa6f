-- Refunds that are `ready`, or wait to be sent again, although the bank said that it has them (migration 0053). A migration of its
-- own, because it locks these rows alone, and no table.
do $$
declare
    r refundd.refunds;
begin
    for r in
        update refundd.refunds f
           set version = f.version + 1, state = 'review', reason = 'said_paid: an answer that came late says that the bank has this refund'
         where (f.state = 'ready' or (f.state = 'unknown' and f.inquire_at is null)) and f.lease_epoch > 0 and refundd.was_said_paid(f.id, true) returning f.*
    loop
        perform refundd.recovery_moved(r, 'said_paid');
    end loop;
end $$;

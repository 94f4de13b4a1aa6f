-- A decision with the very words of the one before left no event: the same two people who let a refund fail and later sent it again
-- for the same reason. Only a decision moves these states under such a reason, so the state alone shows it.
create or replace trigger refunds_decided_or_cancelled_are_events after update on refundd.refunds
    for each row when ((old.state = 'ready' and new.state = 'cancelled')
                       or (old.state in ('review', 'unknown', 'accepted', 'failed') and new.state <> old.state
                           and new.reason like 'decided by %')
                       or old.channel is distinct from new.channel)
    execute function refundd.refunds_write_events();

//! The simulation's own statements. The wire knows each by its number.

/// The texts, each at its number.
pub const ALL: &[&str] = &[LOOK_TEXT, SPENT_TEXT, KEPT_TEXT, KEPT_TWICE_TEXT, RETIRED_TEXT];
pub const LOOK: usize = 0;
pub const SPENT: usize = 1;
pub const KEPT: usize = 2;
pub const KEPT_TWICE: usize = 3;
pub const RETIRED: usize = 4;

/// Reads every row.
const LOOK_TEXT: &str = "
    select r.id, right(r.channel, 1)::bigint, r.state, r.lease_epoch::bigint, r.due_at, r.deadline_at, r.lease_until,
           r.uncertain_at, r.inquire_at, r.inquiries::bigint,
           (select min(s.since) from refundd.suspended s where s.channel = r.channel),
           (select c.cool_until from refundd.channels c where c.channel = r.channel), r.version::bigint
      from refundd.refunds r";

/// Reads how many permits the ledger has for a refund, for each limit.
const SPENT_TEXT: &str =
    "select limit_name, count(*) from refundd.permits where refund_id = $1::bigint group by 1";

/// Reads how many sends the journal has of each refund. A claim that was taken back sent nothing.
const KEPT_TEXT: &str = "select refund_id, count(*) from refundd.attempts where kind = 'send' and code is distinct from 'taken_back' group by 1";

/// Reads the leases that have more than one line of a kind in the journal.
const KEPT_TWICE_TEXT: &str = "
    select refund_id, lease_epoch::bigint from refundd.attempts where code not in ('lease_lapsed', 'taken_back') and kind in ('send', 'inquiry')
     group by 1, 2, kind, case kind when 'inquiry' then number end having count(*) > 1";

/// Reads the retired channels.
const RETIRED_TEXT: &str =
    "select right(channel, 1)::bigint from refundd.channels where retired_at is not null";

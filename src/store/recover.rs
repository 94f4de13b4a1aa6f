//! The moves of recovery that find their refunds by an index: lapsed leases, passed deadlines, plans of inquiries, and
//! refunds that only a person can decide. `recovery_look.rs` has the others.
//!
//! Nothing here moves a refund from `sending` back to `ready`: a lapsed refund may have been sent. Each move writes a line
//! of the journal in its own statement, because the feed of changes reads the journal.
//!
//! Every statement takes the refunds to leave alone, so that one refund at which Postgres fails holds up no other. Most
//! of them visit one channel after the other. So a channel for which there is nothing to do costs one look into an
//! index, also if millions of its refunds are open.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError};
use crate::refund::RefundId;

/// A move that recovery makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryMove {
    /// Refunds whose lease lapsed become `unknown`. They may have been sent.
    Lapse,
    /// `ready` refunds whose deadline passed become `failed`. The bank executed none of them.
    FailLate,
    /// Refunds that lack an inquiry get one.
    Plan,
    /// Refunds of channels without an inquiry lose theirs.
    DropPlans,
    /// Refunds that the bank said it has go to `review`, if no inquiry will say so.
    ShowHad,
    /// `unknown` refunds that no node will send again and that get no inquiry go to `review`.
    ShowUnknown,
    /// `accepted` refunds without an inquiry, whose bank did not report in time, go to `review`.
    ShowAccepted,
}

/// A refund that recovery moved.
#[derive(Debug, PartialEq, Eq)]
pub struct Recovered {
    pub id: RefundId,
    pub channel: String,
    /// The node and the claim that had the lease, if that lapsed.
    pub node: Option<String>,
}

/// The statement of a move, and the one that only reads the ids of the refunds that it would move.
struct Texts {
    doing: &'static str,
    moves: &'static str,
    picks: &'static str,
}

/// Makes both statements of one text that picks the refunds. Its parameters: $1 the most refunds, $2 refunds to leave
/// alone, $3 null or the only refund.
macro_rules! texts {
    ($doing:literal, $picks:expr, $set:literal, $returns:literal) => {
        Texts {
            doing: $doing,
            moves: concat!(
                "update refundd.refunds r set ",
                $set,
                " from (",
                $picks,
                ") picked where r.id = picked.id returning r.id, r.channel",
                $returns
            ),
            picks: concat!("select id from (", $picks, ") picked"),
        }
    };
}

const LAPSE: Statement = statement!(include_str!("sql/lapse.sql"));

// Some of them may not be over by the witnessed time: LAPSE then leaves them alone.
const LAPSED: &str = "
    select id from refundd.refunds
     where state = 'sending' and lease_until < now() and id not in (select unnest($2::bigint[]))
     order by lease_until limit $1";

const FAIL_LATE: Texts = texts!(
    "look for passed deadlines",
    "select id from refundd.refunds
      where state = 'ready' and deadline_at <= least(now(), timestamptz 'epoch' + $4/*witnessed_us*/ * interval '1 microsecond')
        -- A node may not have written a second step yet.
        and deadline_at + refundd.stepped_forward(created_at) <= least(now(), timestamptz 'epoch' + $4/*witnessed_us*/ * interval '1 microsecond')
        and id not in (select unnest($2::bigint[])) and ($3::bigint is null or id = $3)
      order by deadline_at limit $1 for update skip locked",
    "state = 'failed', settled_at = now(), reason = 'deadline_passed'",
    ", refundd.recovery_moved(r, 'deadline_passed')"
);

// Plans an inquiry for refunds that lack one: the channel got its inquiry later, or an older node moved the refund. A
// refund whose resends are used up gets its plan from SHOW_USED_UP: here all that wait for a resend would be read.
const PLAN: Texts = texts!(
    "plan inquiries",
    "select u.id from refundd.channels c cross join lateral (
        select u.id from refundd.refunds u
         where u.channel = c.channel and u.inquire_at is null and u.state in ('unknown', 'accepted')
           and u.state = any(case c.on_unknown when 'inquire' then array['unknown', 'accepted'] else array['accepted'] end)
           and refundd.is_where_it_was_sent(u.sent_to, c.address, u.channel, true)
           and u.id not in (select unnest($2::bigint[])) and ($3::bigint is null or u.id = $3)
         limit $1 for update skip locked) u
      where c.inquires and c.retired_at is null
      limit $1",
    "inquire_at = now()",
    ""
);

// Drops plans of channels that lost their inquiry or are retired: no node would make these inquiries. A refund that the
// bank says it has keeps its plan until SHOW_HAD shows it: without a plan it would wait for a resend that no claim makes.
const DROP_PLANS: Texts = texts!(
    "drop planned inquiries",
    "select u.id from refundd.channels c cross join lateral (
        select u.id from refundd.refunds u
         where u.channel = c.channel and u.inquire_at is not null
           and not (u.state = 'unknown' and refundd.was_said_paid(u.id, true))
           and u.id not in (select unnest($2::bigint[])) and ($3::bigint is null or u.id = $3)
         limit $1 for update skip locked) u
      where not c.inquires or c.retired_at is not null
      limit $1",
    "inquire_at = null",
    ""
);

// The refunds that DROP_PLANS keeps. It looks for a few of each channel in the journal each time: DROP_PLANS drops the plans
// of the others, until only those that the bank has are left.
const SHOW_HAD: Texts = texts!(
    "move refunds that the bank has to review",
    "select u.id from refundd.channels c cross join lateral (
        select u.id from refundd.refunds u
         where u.channel = c.channel and u.state = 'unknown' and u.inquire_at is not null
           and u.id = any(array(
               select few.id
                 from (select p.id from refundd.refunds p
                        where p.channel = c.channel and p.state = 'unknown' and p.inquire_at is not null
                          and p.id not in (select unnest($2::bigint[])) and ($3::bigint is null or p.id = $3)
                        limit 500) few
                where refundd.was_said_paid(few.id, true)))
         limit $1 for update skip locked) u
      where not c.inquires or c.retired_at is not null
      limit $1",
    "state = 'review', reason = 'said_paid: an answer that came late says that the bank has this refund'",
    ", refundd.recovery_moved(r, 'said_paid')"
);

// Every row that it reads is one to show: PLAN, SHOW_USED_UP and the claims look after the other channels. A refund with a
// plan loses it by DROP_PLANS first.
const SHOW_UNKNOWN: Texts = texts!(
    "move unknown refunds to review",
    concat!(
        "select u.id, ",
        include_str!("sql/parts/address_reason.sql"),
        " as elsewhere from refundd.channels c cross join lateral (
        select u.id, u.channel, u.sent_to from refundd.refunds u
         where u.channel = c.channel and u.state = 'unknown' and u.inquire_at is null
           and u.id not in (select unnest($2::bigint[])) and ($3::bigint is null or u.id = $3)
         limit $1 for update skip locked) u
      where c.retired_at is not null or c.on_unknown = 'review' or (c.on_unknown = 'inquire' and not c.inquires)
      limit $1"
    ),
    "state = 'review', reason = coalesce(picked.elsewhere, r.reason)",
    ", refundd.recovery_moved(r, case when picked.elsewhere is null then 'nothing_left_to_try' else 'address_changed' end)"
);

// For channels without inquiries: `due_at` is the end of the time that the bank has to report. With inquiries, the
// inquiry schedule decides.
const SHOW_ACCEPTED: Texts = texts!(
    "move accepted refunds to review",
    concat!(
        "select u.id, ",
        include_str!("sql/parts/address_reason.sql"),
        " as elsewhere from refundd.channels c cross join lateral (
        select u.id, u.channel, u.sent_to from refundd.refunds u
         where u.channel = c.channel and u.state = 'accepted' and u.inquire_at is null and u.due_at <= now()
           and u.id not in (select unnest($2::bigint[])) and ($3::bigint is null or u.id = $3)
         limit $1 for update skip locked) u
      limit $1"
    ),
    "state = 'review', reason = coalesce(picked.elsewhere, r.reason)",
    ", refundd.recovery_moved(r, case when picked.elsewhere is null then 'no_report' else 'address_changed' end)"
);

const LEASED_BY: &str = "select id, channel from refundd.refunds where state = 'sending' and left(lease_node, length($1) + 1) = $1 || '/' order by id";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("lapse", LAPSE.sql),
    ("lapsed", LAPSED),
    ("fail_late", FAIL_LATE.moves),
    ("pick_late", FAIL_LATE.picks),
    ("plan_inquiries", PLAN.moves),
    ("pick_unplanned", PLAN.picks),
    ("drop_plans", DROP_PLANS.moves),
    ("pick_planned", DROP_PLANS.picks),
    ("show_had", SHOW_HAD.moves),
    ("pick_had", SHOW_HAD.picks),
    ("show_unknown", SHOW_UNKNOWN.moves),
    ("pick_unknown", SHOW_UNKNOWN.picks),
    ("show_accepted", SHOW_ACCEPTED.moves),
    ("pick_accepted", SHOW_ACCEPTED.picks),
    ("leased_by", LEASED_BY),
];

impl RecoveryMove {
    /// `None` for the lapse, whose statement has a file of its own.
    const fn texts(self) -> Option<Texts> {
        match self {
            RecoveryMove::Lapse => None,
            RecoveryMove::FailLate => Some(FAIL_LATE),
            RecoveryMove::Plan => Some(PLAN),
            RecoveryMove::DropPlans => Some(DROP_PLANS),
            RecoveryMove::ShowHad => Some(SHOW_HAD),
            RecoveryMove::ShowUnknown => Some(SHOW_UNKNOWN),
            RecoveryMove::ShowAccepted => Some(SHOW_ACCEPTED),
        }
    }
}

impl Store {
    /// Makes a move for at most `limit` refunds, without those in `without`.
    pub async fn recover(
        &self,
        which: RecoveryMove,
        limit: u32,
        without: &[RefundId],
    ) -> Result<Vec<Recovered>, StoreError> {
        self.recover_only(which, limit, None, without).await
    }

    /// Makes a move for this refund, if it waits for the move.
    pub async fn recover_one(&self, which: RecoveryMove, id: RefundId) -> Result<Vec<Recovered>, StoreError> {
        self.recover_only(which, 1, Some(id), &[]).await
    }

    async fn recover_only(
        &self,
        which: RecoveryMove,
        limit: u32,
        only: Option<RefundId>,
        without: &[RefundId],
    ) -> Result<Vec<Recovered>, StoreError> {
        let (most, only, without) = (i64::from(limit), only.map(|id| id.0), column(without, |id| id.0));
        let rows = if let Some(texts) = which.texts() {
            self.recovery_rows(which, texts.moves, (most, without, only)).await.doing(texts.doing)?
        } else {
            let Ok(witnessed_us) = self.witnessed_us() else { return Ok(Vec::new()) };
            let only = only.map(|id| vec![id]);
            let query = bind!(LAPSE, most: most, witnessed_us: witnessed_us, only: only, without: without);
            query.all(&self.db).await.doing("look for lapsed leases")?
        };
        let recovered = |row: &PgRow| Recovered {
            id: RefundId(row.get("id")),
            channel: row.get("channel"),
            // Only the lapse has this column.
            node: row.try_get("node").ok(),
        };
        Ok(rows.iter().map(recovered).collect())
    }

    /// The first `limit` refunds that wait for a move, without those in `without`. Moves none of them.
    pub async fn to_recover(
        &self,
        which: RecoveryMove,
        limit: u32,
        without: &[RefundId],
    ) -> Result<Vec<RefundId>, StoreError> {
        let (most, without) = (i64::from(limit), column(without, |id| id.0));
        let rows = if let Some(texts) = which.texts() {
            self.recovery_rows(which, texts.picks, (most, without, None)).await.doing(texts.doing)?
        } else {
            let query = sqlx::query(LAPSED).bind(most).bind(without);
            query.all(&self.db).await.doing("look for lapsed leases")?
        };
        Ok(rows.iter().map(|row| RefundId(row.get("id"))).collect())
    }

    /// Runs one of the `Texts`. Without a clock witness that has begun, no deadline has passed.
    async fn recovery_rows(
        &self,
        which: RecoveryMove,
        text: &'static str,
        (most, without, only): (i64, Vec<i64>, Option<i64>),
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query(text).bind(most).bind(without).bind(only);
        if which != RecoveryMove::FailLate {
            return query.all(&self.db).await;
        }
        let Ok(witnessed_us) = self.witnessed_us() else { return Ok(Vec::new()) };
        query.bind(witnessed_us).all(&self.db).await
    }

    /// The refunds that a node still has leased, with their channels.
    pub async fn leased_by(&self, node: &str) -> Result<Vec<(i64, String)>, StoreError> {
        let rows =
            sqlx::query(LEASED_BY).bind(node).all(&self.db).await.doing("look for leases of this node")?;
        Ok(rows.iter().map(|row| (row.get("id"), row.get("channel"))).collect())
    }
}

//! Reads the rows, the permits and the journal from Postgres after the run.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use playground::bank::Ledger;
use playground::stage::Stage;
use sqlx::{Connection, PgConnection};

use crate::channels::{self, Channel};
use crate::clock::PostgresClock;
use crate::test_caller;
use crate::world::{World, repeated};

/// A refund's row.
#[derive(Debug)]
pub struct Row {
    pub id: i64,
    pub channel: &'static Channel,
    pub state: String,
    /// What refundd says about a refund that has not come to an end. It is printed, and proves nothing.
    pub reason: Option<String>,
    pub created_us: i64,
    /// `None` for a refund that has not come to an end.
    pub settled_us: Option<i64>,
}

/// Refund ref, channel, state, key, id, creation, end, reason.
type Read = (String, String, String, String, i64, i64, Option<i64>, Option<String>);

/// A request in the journal: its kind, its process, and when its first byte was checked.
#[derive(Debug)]
pub struct Made {
    pub kind: String,
    pub node: String,
    /// The number of a send, as in the header `Refundd-Attempt`.
    pub number: i32,
    /// By Postgres's clock.
    pub started_us: i64,
}

/// Everything that was read from Postgres.
#[derive(Debug)]
pub struct Rows {
    pub by_ref: HashMap<String, Row>,
    /// The refund ref of each key.
    pub refs: HashMap<String, String>,
    /// How many permits of each limit were spent for each refund.
    pub spent: HashMap<(String, String), usize>,
    /// Limit, window and number of each numbered permit.
    pub numbers: Vec<(String, i64, i32)>,
    /// How many permits of each limit were granted to the test caller.
    pub granted: HashMap<String, usize>,
    pub clock: PostgresClock,
    /// The requests about each refund, from the journal.
    pub made: HashMap<String, Vec<Made>>,
    pub attempts: usize,
    /// Refunds that an inquiry settled or released for another send.
    pub cleared_by_inquiry: i64,
    /// Refunds that may have been executed and were settled by a send under the same key.
    pub cleared_by_resend: i64,
    /// Refunds in review because their channel moved to another bank.
    pub address_changed: i64,
}

/// Limit, window, number, refund, caller.
type Permit = (String, i64, i32, Option<String>, Option<String>);

const REFUNDS: &str = "
    select refund_ref, channel, state, request_id::text, id, (extract(epoch from created_at) * 1000000)::bigint,
           (extract(epoch from settled_at) * 1000000)::bigint, case when settled_at is null then reason end
      from refundd.refunds";
const OPEN: &str = "select refund_ref, channel, state, request_id::text from refundd.refunds
                     where state in ('ready', 'sending', 'unknown', 'accepted')";
const PERMITS: &str = "
    select p.limit_name, (extract(epoch from p.window_start) * 1000000)::bigint, p.ordinal, r.refund_ref, p.caller
      from refundd.permits p left join refundd.refunds r on r.id = p.refund_id";
const JOURNAL: &str = "
    select r.refund_ref, a.kind, a.node, a.number, (extract(epoch from a.started_at) * 1000000)::bigint
      from refundd.attempts a join refundd.refunds r on r.id = a.refund_id order by a.id";
const BY_INQUIRY: &str = "
    select count(distinct refund_id) from refundd.attempts
     where kind = 'inquiry' and moved_to in ('succeeded', 'failed', 'ready')";
const BY_RESEND: &str = "
    select count(distinct refund_id)
      from (select refund_id, kind, moved_to, lag(moved_to) over (partition by refund_id order by id) as was
              from refundd.attempts where moved_to is not null) lines
     where kind = 'send' and moved_to in ('succeeded', 'accepted') and was = 'unknown'";

const MOVED: &str =
    "select count(*) from refundd.refunds where state = 'review' and reason like 'address_changed:%'";

fn channel(name: &str) -> anyhow::Result<&'static Channel> {
    channels::named(name).ok_or_else(|| anyhow::anyhow!("nobody made a channel `{name}`"))
}

impl Rows {
    /// Reads everything.
    pub async fn read(stage: &Stage, clock: PostgresClock) -> anyhow::Result<Rows> {
        let mut connection = PgConnection::connect(&stage.database_url()).await?;
        let permits: Vec<Permit> = sqlx::query_as(PERMITS).fetch_all(&mut connection).await?;
        let cleared_by_inquiry = sqlx::query_scalar(BY_INQUIRY).fetch_one(&mut connection).await?;
        let cleared_by_resend = sqlx::query_scalar(BY_RESEND).fetch_one(&mut connection).await?;
        let address_changed = sqlx::query_scalar(MOVED).fetch_one(&mut connection).await?;
        let mut rows = Rows {
            by_ref: HashMap::new(),
            refs: HashMap::new(),
            spent: HashMap::new(),
            numbers: Vec::new(),
            granted: HashMap::new(),
            clock,
            made: HashMap::new(),
            attempts: 0,
            cleared_by_inquiry,
            cleared_by_resend,
            address_changed,
        };
        // Millions of rows: none is kept twice.
        let mut refunds = sqlx::query_as::<_, Read>(REFUNDS).fetch(&mut connection);
        while let Some((name, of, state, key, id, created_us, settled_us, reason)) =
            refunds.try_next().await?
        {
            rows.refs.insert(key, name.clone());
            rows.by_ref
                .insert(name, Row { id, channel: channel(&of)?, state, reason, created_us, settled_us });
        }
        drop(refunds);
        let mut journal =
            sqlx::query_as::<_, (String, String, String, i32, Option<i64>)>(JOURNAL).fetch(&mut connection);
        while let Some((name, kind, node, number, started_us)) = journal.try_next().await? {
            rows.attempts += 1;
            if let Some(started_us) = started_us {
                rows.made.entry(name).or_default().push(Made { kind, node, number, started_us });
            }
        }
        drop(journal);
        connection.close().await?;
        for (limit, window_us, ordinal, name, caller) in permits {
            if caller.as_deref() == Some(test_caller::CALLER) {
                *rows.granted.entry(limit.clone()).or_default() += 1;
            }
            if let Some(name) = name {
                // The permits of a share are named `shares.share2`, and count for the limit that is shared out.
                let whole = limit.split_once(".share").map_or(&*limit, |(whole, _)| whole);
                *rows.spent.entry((whole.to_owned(), name)).or_default() += 1;
            }
            rows.numbers.push((limit, window_us, ordinal));
        }
        Ok(rows)
    }

    /// The refunds that have not come to an end yet but will.
    async fn unfinished(world: &World) -> anyhow::Result<Vec<String>> {
        let mut connection = PgConnection::connect(&world.stage.database_url()).await?;
        let open: Vec<(String, String, String, String)> =
            sqlx::query_as(OPEN).fetch_all(&mut connection).await?;
        connection.close().await?;
        let mut unfinished = Vec::new();
        for (name, of, state, key) in open {
            let is_decided = world.look(|ledger| is_decided(ledger, &key)).contains(&true);
            if is_unfinished(channel(&of)?, &state, is_decided) {
                unfinished.push(name);
            }
        }
        Ok(unfinished)
    }

    pub fn by_state(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for row in self.by_ref.values() {
            *counts.entry(row.state.as_str()).or_default() += 1;
        }
        counts
    }

    /// Refunds in review, by channel.
    pub fn shown(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for row in self.by_ref.values().filter(|row| row.state == "review") {
            *counts.entry(row.channel.name).or_default() += 1;
        }
        counts
    }
}

/// Waits until every refund that can come to an end has done so. Returns how many have not.
///
/// After a long run there are more uncertain refunds than the limits allow inquiries in any fixed time. So this waits
/// as long as refunds come to an end, and gives up after `patience` without one. Only inquiries about refunds that can
/// come to an end are made due. Inquiries about the others would use up the limit on "not found".
pub async fn drain(world: &World, patience: Duration) -> anyhow::Result<usize> {
    let (mut fewest, mut fell) = (usize::MAX, Instant::now());
    let mut made_due = Instant::now();
    loop {
        let unfinished = repeated(async || Rows::unfinished(world).await).await?;
        let left = if unfinished.is_empty() {
            let executing = |ledger: &Ledger| ledger.all().iter().filter(|a| a.executing).count();
            world.look(executing).iter().sum()
        } else {
            unfinished.len()
        };
        if left < fewest {
            (fewest, fell) = (left, Instant::now());
        }
        if left == 0 || fell.elapsed() > patience {
            return Ok(left);
        }
        if made_due.elapsed() > Duration::from_secs(5) {
            let names: Vec<&str> = unfinished.iter().map(String::as_str).collect();
            repeated(async || world.ask_now(&names).await).await?;
            made_due = Instant::now();
            println!("{left:>7} to come to an end");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Whether the bank executed or refused a send under this key.
fn is_decided(ledger: &Ledger, key: &str) -> bool {
    ledger.sends_under(key).any(|send| send.paid || send.refused)
}

/// Whether a refund must still come to an end. Where "not found" is not final, such an answer leaves a refund
/// `unknown` for a week. Without inquiries an accepted refund stays `accepted`. Refunds stay `ready` while the limit of a day
/// is used up.
pub fn is_unfinished(channel: &Channel, state: &str, is_decided: bool) -> bool {
    match (state, &channel.inquiry) {
        ("ready", _) if channel.may_run_out() => false,
        ("ready" | "sending", _) | ("unknown", None) => true,
        ("unknown" | "accepted", Some(inquiry)) => inquiry.not_found_is_final || is_decided,
        _ => false,
    }
}

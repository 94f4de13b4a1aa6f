//! A node as an operator may find it, for the tests in a browser and for the pictures of the documentation.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::{Decision, OwnSuspension};
use sqlx::Executor;

use super::{Scratch, TestNode, until};

const CHANNELS: &str = r#"
[limit.acme]
permits = 20
per = "1s"
[limit.acme-day]
permits = 1000000
per = "24h"
[limit.northbank]
algorithm = "paced"
permits = 1
per = "1s"
[limit.globex]
algorithm = "token_bucket"
permits = 300
per = "1m"
burst = 50
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme", "acme-day"]
max_backlog = 100000
[channel.northbank]
endpoint = "http://{bank}/northbank/refunds"
limits = ["northbank"]
[channel.globex]
endpoint = "http://{bank}/globex/refunds"
limits = ["globex"]
[channel.sepa]
endpoint = "http://{bank}/sepa/refunds"
limits = ["acme"]
[channel.farbank]
endpoint = "http://127.0.0.1:9/refunds"
limits = ["northbank"]
connect_timeout = "1s"
"#;

/// What happened in the last minutes, as the journal and the ledger have it. The owner writes it, because nobody waits for it.
/// One transaction, so that all of them see one `now()`.
const HISTORY: &[&str] = &[
    "begin",
    "set session_replication_role = 'replica'",
    "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, attempts, settled_at)
     select 'order-' || n || '-refund-1', 'acme', 'P-' || 70000 + n, 1000 + n * 371 % 90000, 'EUR', 'succeeded', 1, now()
       from generate_series(1, 1000) n",
    "create temporary table pace as
     select s, greatest(0, least(20, round(13 + 6 * sin(s / 45.0) + 3 * sin(s / 7.0) + random() * 3)))::int as n
       from generate_series(2, 899) s where s not between 300 and 345",
    "insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
     select 'acme', date_trunc('second', now()) - s * interval '1 second', o, 1, 'a#1' from pace, generate_series(1, n) o",
    "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
     select 'acme', date_trunc('second', now()) - s * interval '1 second', n + 1, 'ledger-service', 'a#1' from pace where n < 20 and s % 3 = 0",
    "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, status, code)
     select 1 + (s * 20 + o) % 1000, 'acme', case when o = 7 then 'inquiry' else 'send' end, 1, 1, 'a#1', now() - s * interval '1 second', now() - s * interval '1 second',
            case when s % 97 = 5 and o < 4 then 'rejected' when s between 600 and 630 and o % 3 = 0 then 'unknown' when o = 7 then 'accepted' else 'succeeded' end, 'succeeded',
            case when s % 97 = 5 and o < 4 then 422 when s between 600 and 630 and o % 3 = 0 then 500 else 200 end,
            case when s % 97 = 5 and o < 4 then 'rejected' when s between 600 and 630 and o % 3 = 0 then 'server_error' end
       from pace, generate_series(1, n) o",
    "insert into refundd.events (at, kind, channel, who, reason)
     values (now() - interval '345 seconds', 'paused', 'acme', 'ann', 'the bank called: they restart a server'),
            (now() - interval '299 seconds', 'resumed', 'acme', 'ann', null)",
    "commit",
];

/// A node with channels of every kind: one that sends, one that waits, one that is paused, one whose bank is away; and refunds
/// that wait for a person.
pub async fn stage() -> (Scratch, TestNode) {
    let scratch = Scratch::new().await;
    scratch.bank.then("globex", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "node-a", CHANNELS).await;
    scratch.pause("sepa", "the bank's maintenance until six", "ann").await;
    let mut owner = scratch.connect().await;
    for statement in HISTORY {
        owner.execute(*statement).await.unwrap();
    }
    scratch.insert("globex", "order-9", 6).await;
    scratch.insert("sepa", "sepa-", 12).await;
    scratch.insert("farbank", "far-", 3).await;
    scratch.insert("northbank", "north-", 400).await;
    scratch.insert("acme", "acme-", 9000).await;
    until("refunds wait for a person", async || scratch.count(State::Review).await == 6).await;
    let sepa = ChannelName::new("sepa").unwrap();
    let refused = "the bank answered 401, so it does not take the credentials";
    let own = OwnSuspension::Credentials { age: Duration::ZERO };
    scratch.store.suspend(&sepa, own, refused, "node-a#1").await.unwrap();
    propose(&scratch).await;
    until("the page says that farbank's bank is away", async || {
        node.get("/").await.text.contains("unreachable")
    })
    .await;
    (scratch, node)
}

/// One person decides to send the last refund in review again, which needs a second person.
async fn propose(scratch: &Scratch) {
    let id = scratch.number("select max(id) from refundd.refunds where state = 'review'").await;
    let seen = scratch.store.refund(RefundId(id)).await.unwrap().unwrap().version;
    let why = "the bank's desk: they have no such refund";
    let decision =
        Decision { id: RefundId(id), seen, next: State::Ready, not_executed: true, why, who: "ann" };
    scratch.store.decide(&decision).await.unwrap();
}

/// The id of a refund that waits for a person.
pub async fn in_review(scratch: &Scratch) -> i64 {
    scratch.number("select min(id) from refundd.refunds where state = 'review'").await
}

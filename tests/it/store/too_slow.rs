//! Batches of outcomes on which Postgres works for longer than the session allows.

use std::sync::Arc;
use std::time::Duration;

use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::{Outcome, State};
use refundd::settler::Settler;
use tokio::sync::mpsc;

use super::{claim, limited_scratch_with, settled_all, unlimited};

#[tokio::test]
async fn outcomes_on_which_postgres_works_too_long_together_are_written_in_halves() {
    let scratch = limited_scratch_with(40).await;
    let taken: Vec<_> = (1..=40).map(unlimited).collect();
    let claimed = claim(&scratch, "a", &taken).await;
    // 40 lines take 4 s, and a statement may take 3.5 s.
    for statement in [
        "create function public.takes_long() returns trigger language plpgsql as $$ begin perform pg_sleep(0.1); return null; end $$",
        "create trigger takes_long after insert on refundd.attempts for each row execute function public.takes_long()",
    ] {
        scratch.sql(statement).await;
    }
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    for one in settled_all(&claimed, &Outcome::Succeeded) {
        outcomes.send(one).await.unwrap();
    }
    drop(outcomes);
    let writes = tokio::time::timeout(Duration::from_mins(1), Settler::new(node, inbox).run());
    writes.await.expect("the outcomes are written");
    assert_eq!(scratch.count(State::Succeeded).await, 40);
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 40);
}

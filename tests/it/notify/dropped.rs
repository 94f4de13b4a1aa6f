//! A receiver that was away for longer than the journal is kept.

use std::time::Duration;

use rustix::process::Signal;

use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Receiver, until};
use crate::journal::months;

#[tokio::test]
async fn lines_that_were_dropped_before_their_delivery_are_named_once_and_later_changes_come() {
    let scratch = months(4, &[]).await;
    // As if the last node that delivered had stopped before all of these months.
    let feed = "update refundd.feed set delivered_until = 0, delivered_by = 'gone#1', leased_until = now()";
    scratch.sql(feed).await;
    assert_eq!(scratch.store.rotate_attempts(Some(Duration::from_secs(1))).await.unwrap().dropped, 4);
    let receiver = Receiver::start(None);
    let channels = format!("{UNLIMITED}{}", receiver.section());
    let named = |node: &NodeProcess| {
        let log = node.log();
        log.iter().filter(|line| line.contains("The journal has dropped its lines from 1 to 4 ")).count()
    };
    for (nth, (name, prefix)) in [("a", "S-"), ("b", "T-")].into_iter().enumerate() {
        let mut node = NodeProcess::start(&scratch, name, &channels);
        scratch.insert("acme", prefix, 3).await;
        until("the new changes are delivered", async || receiver.taken().len() == 3 * (nth + 1)).await;
        node.signal(Signal::TERM);
        assert!(node.wait().success());
        assert_eq!(named(&node), usize::from(nth == 0), "{:#?}", node.log());
    }
}

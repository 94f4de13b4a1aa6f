//! A month of the journal that is dropped while a page of changes is read.

use std::time::Duration;

use refundd::caller::Names;
use refundd::store::ChangeFilter;
use serde_json::json;

use crate::harness::{TestNode, until};
use crate::journal::months;

#[tokio::test]
async fn a_page_whose_lines_were_dropped_while_it_was_read_is_not_answered() {
    let scratch = months(4, &[]).await;
    let node = TestNode::start(&scratch, "a", "").await;
    // The reader looks how far the journal goes, and then its page waits for this lock.
    let mut holder = scratch.connect().await;
    sqlx::raw_sql("begin; lock table refundd.refunds in access exclusive mode")
        .execute(&mut holder)
        .await
        .unwrap();
    let drop_lines = async {
        let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                        and query like '%with lines as (%'";
        until("the page waits", async || scratch.number(waits).await == 1).await;
        scratch.sql("update refundd.feed set forgotten_until = 4").await;
        sqlx::raw_sql("commit").execute(&mut holder).await.unwrap();
    };
    let (answer, ()) = tokio::join!(node.get("/v1/changes?after=0"), drop_lines);
    let problem = answer.json();
    assert_eq!(
        (answer.status.as_u16(), &problem["type"], &problem["oldest"]),
        (410, &json!("urn:refundd:problem:cursor-gone"), &json!("4")),
        "{problem}"
    );
    node.stop().await;
}

#[tokio::test]
async fn no_page_begins_before_the_lines_that_were_dropped_since_the_look() {
    let scratch = months(4, &[]).await;
    let reach = scratch.store.journal_is_whole_until().await.unwrap();
    assert_eq!((reach.forgotten_until, reach.whole_until), (0, 5));
    assert_eq!(scratch.store.rotate_attempts(Some(Duration::from_secs(1))).await.unwrap().dropped, 4);
    let next = async |after| {
        let filter = ChangeFilter { after, limit: 100, ..ChangeFilter::of(Names::All) };
        scratch.store.changes(&filter, reach.whole_until).await.unwrap().map(|page| page.next)
    };
    assert_eq!((next(0).await, next(3).await, next(4).await), (None, None, Some(5)));
}

//! Lists of many pages, in a browser.

use sqlx::Executor;

use crate::harness::reader::Reader;
use crate::harness::stage::stage;
use crate::harness::until;
use crate::page::see;

#[tokio::test]
async fn filtered_and_paged_lists_lead_to_their_other_pages_and_are_accessible() {
    let ((scratch, node), mut reader) = (stage().await, Reader::open().await);
    let rows = "
        set session_replication_role = 'replica';
        insert into refundd.channels (channel, endpoint, settings, published_by)
        select 'bank-' || n, 'http://127.0.0.1:9/', '{}', 'test' from generate_series(1, 150) n;
        insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, attempts, reason)
        select 'R-' || n, 'bank-1', 'P-many', n, 'EUR', 'review', 1, 'bank_trouble: HTTP 500' from generate_series(1, 60) n;
        insert into refundd.events (at, kind, channel, who, reason)
        select now() - n * interval '1 minute', 'paused', 'bank-1', 'ann', 'reason ' || n from generate_series(1, 120) n";
    scratch.connect().await.execute(rows).await.unwrap();
    until("the channels are counted", async || {
        see(&node, "/?q=bank-&page=2").await.text.contains("Page 2 of 2")
    })
    .await;
    let next = "document.querySelector('a[rel=next]').click()";
    let filter = "main form.filter";
    for (path, fields, first, second) in [
        ("/", &[("q", "bank-")][..], "Page 1 of 2, 150 channels", "Page 2 of 2, 150 channels"),
        ("/review", &[("channel", "bank-1")], "R-50", "R-60"),
        ("/events", &[("channel", "bank-1"), ("from", "3h"), ("to", "now")], "reason 100", "reason 120"),
    ] {
        reader.browser.go(&format!("http://{}{path}", node.daemon.address())).await;
        reader.send(filter, fields, &[]).await;
        reader.check(first).await;
        reader.browser.eval(next).await;
        reader.check(second).await;
    }
    for (path, field, words) in [
        ("/nodes", ("q", "globex"), "50 + 300 in any 60s"),
        ("/refunds", ("q", "P-many"), "60 refunds"),
        ("/approvals", ("channel", "bank-1"), "Nothing waits for a second person here"),
    ] {
        reader.browser.go(&format!("http://{}{path}", node.daemon.address())).await;
        reader.send(filter, &[field], &[]).await;
        reader.check(words).await;
    }
    reader.end();
    node.stop().await;
}

//! The pages that follow a decision or another action, in a browser.

use crate::harness::reader::Reader;
use crate::harness::stage::stage;

#[tokio::test]
async fn every_page_that_follows_an_action_is_accessible_at_both_widths_and_in_both_schemes() {
    let ((scratch, node), mut reader) = (stage().await, Reader::open().await);
    let at = |path: &str| format!("http://{}{path}", node.daemon.address());
    let decision = [("reason", "on the statement"), ("by", "ann")];
    let versions = "select string_agg(id || '@' || version, ' ' order by id) from refundd.refunds where state = 'review'";
    let versions = scratch.text(versions).await;
    let refunds: Vec<&str> = versions.split(' ').collect();
    let (first, _) = refunds[0].split_once('@').unwrap();
    let review = async |reader: &Reader| {
        reader.browser.go(&at("/review")).await;
        reader.browser.shows("wait for a person").await;
    };
    review(&reader).await;
    reader.send("#decisions", &decision, &["failed"]).await;
    reader.check("none is chosen").await;
    review(&reader).await;
    let stale = format!("document.querySelector('input[name=refund]').value = '{first}@1'");
    reader.browser.eval(&stale).await;
    reader.send("#decisions", &decision, &[&format!("{first}@1"), "failed"]).await;
    reader.check("Not decided").await;
    review(&reader).await;
    reader.send("#decisions", &decision, &[refunds[0], refunds[1], "succeeded"]).await;
    reader.check("2 of 2 refunds decided").await;
    review(&reader).await;
    reader.send("#decisions", &decision, &[refunds[2], refunds[3], "ready", "not_executed"]).await;
    reader.check("Not decided yet").await;
    for (path, words) in [("approve", "1 of 1 decision approved"), ("withdraw", "1 of 1 decision withdrawn")]
    {
        reader.browser.go(&at("/approvals")).await;
        reader.browser.shows("to become").await;
        let action = format!("document.querySelector('#opinions').action = '/approvals/{path}'");
        reader.browser.eval(&action).await;
        let proposal =
            reader.browser.eval("return document.querySelector('input[name=proposal]').value").await;
        let answer = [("reason", "they told me, too"), ("by", "bob")];
        reader.send("#opinions", &answer, &[proposal.as_str().unwrap()]).await;
        reader.check(words).await;
    }
    // A pause, its end, and a stop lead back to the page with a notice.
    let pause = [("reason", "the bank asked us"), ("by", "ann")];
    reader.browser.go(&at("/channels/northbank")).await;
    reader.send("#steer form", &pause, &[]).await;
    reader.check("Paused: nothing more is claimed").await;
    reader.send(".causes form", &[("by", "ann")], &[]).await;
    reader.check("Resumed: refunds are sent again").await;
    reader.browser.go(&at("/")).await;
    reader.send("#stop form", &pause, &[]).await;
    reader.check("everything is paused by ann").await;
    let id = scratch.number("select max(id) from refundd.refunds where channel = 'sepa'").await;
    reader.browser.go(&at(&format!("/refunds/{id}"))).await;
    reader.send("section[aria-labelledby=cancel] form", &pause, &[]).await;
    reader.check("Cancelled: it is never sent").await;
    reader.browser.go(&at("/proof?channel=acme&from=yesterday")).await;
    reader.check("is not a time").await;
    reader.end();
    node.stop().await;
}

//! The pages that follow an action, and lists of many pages: in a real browser, accessible at both widths and in both schemes.

use serde_json::json;
use sqlx::Executor;

use super::browser::faults;
use super::forms::basic;
use super::stage::stage;
use crate::callers::{CallerTables, TWO_CHANNELS};
use crate::harness::browser::{Browser, LOOKS};
use crate::harness::{Scratch, TestNode, until};

/// A browser, and what it found so far.
struct Reader {
    browser: Browser,
    findings: Vec<String>,
    pages: usize,
}

impl Reader {
    async fn open() -> Reader {
        let browser = Browser::open().await;
        browser.add_axe().await;
        Reader { browser, findings: Vec::new(), pages: 0 }
    }

    /// Fills in the fields of a form and sends it. `chosen` are boxes and radio buttons by their values.
    async fn send(&self, form: &str, fields: &[(&str, &str)], chosen: &[&str]) {
        let script = format!(
            "const form = document.querySelector({});
             for (const [name, value] of {}) form.querySelector(`[name=${{name}}]`).value = value;
             for (const value of {}) [...form.elements].find((one) => one.value === value).checked = true;
             form.requestSubmit();",
            json!(form),
            json!(fields),
            json!(chosen)
        );
        self.browser.eval(&script).await;
    }

    /// Waits for a page, and checks it as it stands there in every look.
    async fn check(&mut self, words: &str) {
        self.browser.shows(words).await;
        self.pages += 1;
        for look in LOOKS {
            self.browser.look(look).await;
            let found = faults(&self.browser).await;
            self.findings.extend(found.into_iter().map(|what| format!("`{words}` at {look:?}: {what}")));
        }
    }

    fn end(self) {
        assert_eq!(self.findings, Vec::<String>::new());
        println!("{} pages, {} looks, no finding", self.pages, LOOKS.len());
    }
}

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
        super::see(&node, "/?q=bank-&page=2").await.text.contains("Page 2 of 2")
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

#[tokio::test]
async fn the_pages_of_a_caller_who_may_only_look_are_accessible() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"look\"]\nchannels = [\"acme\"]");
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    scratch.insert("acme", "R-", 3).await;
    scratch.to_review("id < 3").await;
    let mut reader = Reader::open().await;
    reader.browser.send_header("Authorization", &basic("ann", &desk)).await;
    for path in [
        "/",
        "/channels/acme",
        "/review",
        "/approvals",
        "/events",
        "/refunds/3",
        "/proof?channel=acme",
        "/nodes",
    ] {
        reader.browser.go(&format!("http://{}{path}", node.daemon.address())).await;
        reader.check("You are the caller desk").await;
        assert_eq!(
            reader.browser.eval("return document.querySelectorAll('main form[method=post]').length").await,
            0,
            "{path}"
        );
    }
    reader.browser.go(&format!("http://{}/channels/other", node.daemon.address())).await;
    reader.check("no node ever ran a channel `other`, or this caller does not have it").await;
    reader.end();
    node.stop().await;
}

//! What a bank's answer to an inquiry settles, and what it does not prove.

use std::time::Duration;

use playground::bank::{Kind, Step};
use refundd::refund::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ASKS, age, inquiries_reach, is, journal};
use crate::harness::{NodeProcess, Scratch, TestNode, until};

#[tokio::test]
async fn an_inquiry_settles_an_unknown_refund_as_the_bank_says() {
    for (step, state) in [
        (Step::pays_but_says_500(), State::Succeeded),
        (Step::silence().and_pays(), State::Succeeded),
        (Step::resets().and_refuses(), State::Failed),
        (Step::answers(500, "{}").decided_after(Duration::from_mins(1)), State::Accepted),
    ] {
        let scratch = Scratch::new().await;
        scratch.bank.then("acme", step.clone());
        let node = TestNode::start(&scratch, "a", ASKS).await;
        scratch.insert("acme", "R-", 1).await;
        is(&scratch, State::Unknown, 1).await;
        let wait = "select (extract(epoch from inquire_at - uncertain_at) * 10)::bigint from refundd.refunds";
        assert_eq!(scratch.number(wait).await, 100, "the first inquiry comes after ten seconds");
        age(&scratch, "10 seconds").await;
        is(&scratch, state, 1).await;
        let ledger = scratch.bank.ledger();
        assert_eq!(ledger.inquiries("acme").count(), 1, "{step:?}");
        assert_eq!(ledger.inquiries("acme").next().unwrap().key, ledger.all()[0].key);
        assert!(ledger.repeated().is_empty());
        let said = journal(&scratch, "number, outcome, moved_to, status").await;
        assert!(said.starts_with("1 ") && said.contains(state.as_str()) && said.ends_with("200"), "{said}");
        node.stop().await;
    }
}

#[tokio::test]
async fn not_found_counts_only_after_its_grace_and_then_it_is_sent_again() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::answers(500, "{}")]);
    let quick = ASKS.replace("limits = []", "limits = []\nretry = { base = \"10ms\", cap = \"20ms\" }");
    let node = TestNode::start(&scratch, "a", &quick).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(scratch.count(State::Unknown).await, 1, "asked within its grace");
    age(&scratch, "30 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(journal(&scratch, "outcome, moved_to").await, "unknown unknown, not_executed ready");
    let ledger = scratch.bank.ledger();
    assert_eq!(ledger.paid_by_key().values().copied().collect::<Vec<_>>(), [1]);
    assert!(ledger.altered().is_empty(), "the same key and the same body");
    assert_eq!(scratch.number("select count(*) from refundd.refunds where uncertain_at is null").await, 1);
    node.stop().await;
}

#[tokio::test]
async fn a_request_that_arrives_after_a_404_is_not_doubled_while_the_grace_lasts() {
    let scratch = Scratch::new().await;
    // The bank executes it late: until then nobody finds it.
    scratch.bank.next("acme", [Step::answers(504, "{}").paying_after(Duration::from_secs(15))]);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(journal(&scratch, "code").await, "not_found");
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.paid_by_key().len() == 1).await);
    age(&scratch, "20 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert!(scratch.bank.ledger().doubled().is_empty());
    assert_eq!(scratch.bank.ledger().repeated(), []);
    node.stop().await;
}

#[tokio::test]
async fn where_not_found_is_not_final_it_is_never_sent_again() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::answers(500, "{}"));
    let node = TestNode::start(&scratch, "a", &ASKS.replace("not_found_is_final = true, ", "")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "5 days").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(scratch.count(State::Unknown).await, 1);
    let hours = "select round(extract(epoch from inquire_at - now()) / 3600)::bigint from refundd.refunds";
    assert_eq!(scratch.number(hours).await, 24, "asked daily by now");
    age(&scratch, "7 days").await;
    is(&scratch, State::Review, 1).await;
    let reason = scratch.text("select reason from refundd.refunds").await;
    assert!(reason.starts_with("inquiries_used_up"), "{reason}");
    assert_eq!(scratch.bank.look(|l| l.all().iter().filter(|a| a.kind == Kind::Send).count()), 1);
    node.stop().await;
}

#[tokio::test]
async fn an_inquiry_that_fails_proves_nothing() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let faults = [
        Step::answers(500, r#"{"status":"rejected"}"#),
        Step::silence(),
        Step::resets(),
        Step::garbage(),
        Step::answers(200, r#"{"status":"rejected"}"#).cut_after(115),
        Step::answers(200, "<html>log in</html>"),
        Step::answers(200, r#"{"status":"what?"}"#),
        Step::redirects("http://127.0.0.1:9/"),
    ];
    let count = faults.len();
    scratch.bank.next_inquiries("acme", faults);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    for time in 1..=count {
        // An id that was taken is left out of the line for two seconds.
        age(&scratch, "20 seconds").await;
        inquiries_reach(&scratch, i64::try_from(time).unwrap()).await;
        assert_eq!(scratch.count(State::Unknown).await, 1, "after fault {time}");
    }
    assert_eq!(
        journal(&scratch, "code").await,
        "bank_trouble, timeout, answer_lost, answer_lost, answer_cut, unreadable, unmapped, redirect"
    );
    age(&scratch, "20 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_404_that_is_not_the_banks_own_proves_nothing() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let pages = [
        Step::answers(404, "<html>404 Not Found</html>"),
        Step::answers(404, ""),
        Step::answers(404, "404"),
        Step::writes(b"HTTP/1.0 404 Not Found\r\n\r\n"),
        Step::answers(404, r#"{"error":"not fo"#),
    ];
    let count = pages.len();
    scratch.bank.next_inquiries("acme", pages);
    let quick = ASKS.replace("limits = []", "limits = []\nretry = { base = \"10ms\", cap = \"20ms\" }");
    let node = TestNode::start(&scratch, "a", &quick).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    for time in 1..=count {
        age(&scratch, "40 seconds").await;
        inquiries_reach(&scratch, i64::try_from(time).unwrap()).await;
        assert_eq!(scratch.count(State::Unknown).await, 1, "after page {time}");
    }
    assert_eq!(journal(&scratch, "code").await, "not_json, not_json, not_json, not_json, not_json");
    // Where the bank has words of its own, JSON of somebody else's does not count either.
    let named = quick.replace(
        "grace = \"30s\"",
        "grace = \"30s\", not_found = { pointer = \"/error\", equals = \"no such refund\" }",
    );
    node.daemon.reload(scratch.config("a", &named)).await.unwrap();
    scratch.bank.next_inquiries("acme", [Step::answers(404, r#"{"message":"no Route matched"}"#)]);
    age(&scratch, "40 seconds").await;
    inquiries_reach(&scratch, 6).await;
    assert!(journal(&scratch, "code").await.ends_with("not_json, other_404"));
    age(&scratch, "40 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(scratch.bank.ledger().repeated(), [], "it was sent once");
    node.stop().await;
}

/// HTTP lets a gateway store the first 404 and answer the next inquiries with it.
#[tokio::test]
async fn an_inquiry_asks_caches_to_stand_aside_and_a_not_found_that_one_stored_proves_nothing() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let gateway = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let quick = ASKS.replace("limits = []", "limits = []\nretry = { base = \"10ms\", cap = \"20ms\" }");
    let cached =
        quick.replace("url = \"http://{bank}", &format!("url = \"http://{}", gateway.local_addr().unwrap()));
    let (came, mut requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for nth in 0.. {
            let Ok((mut stream, _)) = gateway.accept().await else { break };
            let came = came.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let stored = "HTTP/1.1 404 Not Found\r\nage: 25\r\ncontent-length: 2\r\n\r\n{}";
                let fresh = "HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n{\"status\":\"succeeded\"}";
                let answer = if nth == 0 { stored } else { fresh };
                stream.write_all(answer.as_bytes()).await.unwrap();
                let _ = came.send(String::from_utf8_lossy(&request).to_lowercase());
            });
        }
    });
    let node = TestNode::start(&scratch, "a", &cached).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "40 seconds").await;
    inquiries_reach(&scratch, 1).await;
    let request = requests.recv().await.unwrap();
    for header in ["cache-control: no-cache, no-store", "pragma: no-cache"] {
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{request}");
    }
    assert_eq!(journal(&scratch, "outcome, code, moved_to").await, "unknown stored_answer unknown");
    age(&scratch, "40 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(scratch.bank.ledger().repeated(), [], "it was sent once");
    node.stop().await;
}

/// nginx refuses so when its `limit_req` refuses.
#[tokio::test]
async fn a_refusal_that_a_rule_calls_asked_to_wait_cools_the_channel_also_after_an_inquiry() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.bank.next_inquiries("acme", [Step::answers(503, "<html>503</html>")]);
    let rule = "[[channel.acme.verdict]]\nstatus = 503\noutcome = \"asked_to_wait\"\n";
    let node = TestNode::start(&scratch, "a", &format!("{ASKS}cool_down = \"1m\"\n{rule}")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "20 seconds").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(journal(&scratch, "outcome, code").await, "unknown channel_rule");
    let cooling = "select count(*) from refundd.channels where cool_until > now()";
    until("the channel cools", async || scratch.number(cooling).await == 1).await;
    assert_eq!(scratch.count(State::Unknown).await, 1);
    node.stop().await;
}

#[tokio::test]
async fn a_log_line_about_an_inquiry_has_its_number() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = NodeProcess::start(&scratch, "a", ASKS);
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "1 minute").await;
    node.wait_for_line("after inquiry 1 on channel");
    let log = node.log();
    let line = log.iter().find(|line| line.contains("after inquiry 1 on channel")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["inquiry.number"], &line["refund.id"]), (&1.into(), &"1".into()), "{line}");
}

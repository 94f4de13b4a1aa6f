//! The forms that steer: suspensions each with its own way out, the stop of everything, and the second person's answers; and the
//! pages that find a refund and list events.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::{Move, OwnSuspension};
use sqlx::Executor;

use super::see;
use crate::callers::{CallerTables, TWO_CHANNELS, basic, post_form};
use crate::dispatch::UNLIMITED;
use crate::harness::node::{Answer, refund};
use crate::harness::{Scratch, TestNode, until};

/// Where a form leads to, without what it changed.
pub(super) fn leads_to(answer: &Answer) -> &str {
    assert_eq!(answer.status, 303, "{answer:?}");
    answer.headers["location"].to_str().unwrap().split('&').next().unwrap()
}

/// How many rows the table of a page has.
fn rows(page: &str) -> usize {
    page.matches("role=\"rowheader\"").count()
}

#[tokio::test]
async fn each_cause_of_a_suspension_stands_apart_and_has_a_button_of_its_own() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let acme = ChannelName::new("acme").unwrap();
    let reason = "the bank answered 401";
    let own = OwnSuspension::Credentials { age: Duration::ZERO };
    assert!(scratch.store.suspend(&acme, own, reason, "a#1").await.unwrap());
    let fields = "reason=we+look+into+it&by=ann&for_seconds=7200";
    let paused = post_form(&node, None, "/channels/acme/pause", fields).await;
    assert_eq!(leads_to(&paused), "/channels/acme?done=paused");
    let lasts = "select extract(epoch from pause_until - paused_at)::bigint from refundd.channels";
    assert_eq!(scratch.number(lasts).await, 7200);
    let page = see(&node, "/channels/acme?done=paused").await.text;
    let (person, own) = page.split_once("Suspended by refundd itself").unwrap();
    for (part, words) in [
        (person, "every node knows within a second"),
        (person, "Suspended by a person"),
        (person, "we look into it"),
        (person, "acme is paused by ann since"),
        (person, "Resume acme"),
        (own, reason),
        (own, "The credentials are right now"),
    ] {
        assert!(part.contains(words), "{words}: {page}");
    }
    for (lift, done, left) in
        [("pause", "ended", 1), ("pause", "unchanged", 1), ("credentials", "resumed", 0)]
    {
        let answer = post_form(&node, None, "/channels/acme/resume", &format!("lift={lift}&by=ann")).await;
        assert_eq!(leads_to(&answer), format!("/channels/acme?done={done}"));
        assert_eq!(scratch.suspensions().await, left, "{lift}");
    }
    for seconds in ["0", "2h", "99999999999"] {
        let fields = format!("reason=r&by=ann&for_seconds={seconds}");
        let refused = post_form(&node, None, "/channels/acme/pause", &fields).await;
        assert!(
            refused.status == 422 && refused.text.contains("<strong>Ends</strong>"),
            "{seconds}: {refused:?}"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn the_wait_that_a_bank_asked_for_has_a_button_that_ends_it_and_no_other_one() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let cools = "update refundd.channels set cool_until = now() + interval '1 day', cool_reason = 'HTTP 503'";
    scratch.sql(cools).await;
    let page = see(&node, "/channels/acme").await.text;
    assert!(page.contains("The bank is well: do not wait"), "{page}");
    let now = node.get("/v1/suspensions").await.json();
    let shown = now["suspensions"][0]["until"].as_str().unwrap();
    assert!(page.contains(&format!("name=\"seen\" value=\"{shown}\"")), "{shown}: {page}");
    for (seen, done) in [("2026-01-01T00:00:00Z", "changed"), (shown, "resumed")] {
        let fields = format!("lift=cooling&by=ann&seen={seen}");
        let answer = post_form(&node, None, "/channels/acme/resume", &fields).await;
        assert_eq!(leads_to(&answer), format!("/channels/acme?done={done}"));
        let page = see(&node, answer.headers["location"].to_str().unwrap()).await.text;
        assert_eq!(page.contains("acme was to cool until"), done == "resumed", "{page}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_form_stops_everything_and_resumes_it_and_only_for_whom_all_channels_exist() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let of_all = callers.caller("chief", "may = [\"look\", \"operate\"]\nchannels = [\"*\"]");
    let of_one = callers.caller("desk", "may = [\"look\", \"operate\"]\nchannels = [\"acme\"]");
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    let (of_all, of_one) = (basic("ann", &of_all), basic("bob", &of_one));
    let get = async |login: &str, path: &str| {
        node.request_with(hyper::Method::GET, path, &[("authorization", login)], "").await.text
    };
    assert!(get(&of_all, "/").await.contains("Stop everything now"));
    assert!(!get(&of_one, "/").await.contains("Stop everything"));
    assert_eq!(post_form(&node, Some(&of_one), "/pause", "reason=r").await.status, 403);
    let stopped = post_form(&node, Some(&of_all), "/pause", "reason=the+bank+called").await;
    assert_eq!(leads_to(&stopped), "/?done=paused");
    for login in [&of_all, &of_one] {
        for path in ["/", "/channels/acme"] {
            let page = get(login, path).await;
            assert!(
                page.contains("everything is paused by") && page.contains("the bank called"),
                "{path}: {page}"
            );
        }
    }
    assert_eq!(get(&of_one, "/").await.matches("Resume everything").count(), 0);
    assert_eq!(leads_to(&post_form(&node, Some(&of_all), "/resume", "").await), "/?done=resumed");
    assert_eq!(scratch.suspensions().await, 0);
    assert_eq!(leads_to(&post_form(&node, Some(&of_all), "/resume", "").await), "/?done=unchanged");
    node.stop().await;
}

#[tokio::test]
async fn a_second_person_approves_and_withdraws_on_the_page() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    scratch.insert("acme", "R-", 3).await;
    scratch.to_review("true").await;
    assert!(!see(&node, "/review").await.text.contains("for a second person"));
    let again = "refund=1%403&refund=2%403&state=ready&confirm=not_executed&reason=it+never+arrived&by=ann";
    let decided = post_form(&node, None, "/review", again).await.text;
    for words in
        ["Not decided yet", "2 wait for a second person", "Nothing has moved yet", "href=\"/approvals\""]
    {
        assert!(decided.contains(words), "{words}: {decided}");
    }
    let first = scratch.number("select min(id) from refundd.proposals").await;
    let review = see(&node, "/review").await.text;
    assert!(review.contains("2 decisions"), "{review}");
    assert_eq!(review.matches(" was proposed</a> by ").count(), 2, "of three refunds: {review}");
    assert!(see(&node, "/refunds/1").await.text.contains("waits for a second person"));
    let list = see(&node, "/approvals").await.text;
    assert_eq!(rows(&list), 2, "{list}");
    for words in [
        &format!("value=\"{first}@3\""),
        "it never arrived",
        "an earlier send may have been executed",
        "the bank executed none of the earlier sends",
        "status 500",
    ] {
        assert!(list.contains(words), "{words}: {list}");
    }
    let fields = |id: i64, by: &str| format!("proposal={id}%403&reason=the+bank+told+me%2C+too&by={by}");
    for (path, id, by, heading, words) in [
        ("approve", first, "ann", "Nothing was approved", "another person must approve it"),
        ("approve", first, "bob", "Approved", "1 of 1 decision approved"),
        ("approve", first, "bob", "Nothing was approved", "it was approved by bob before"),
        ("withdraw", first + 1, "ann", "Withdrawn", "1 of 1 decision withdrawn"),
        ("withdraw", first + 9, "ann", "Nothing was withdrawn", "no proposal has this id"),
    ] {
        let answer = post_form(&node, None, &format!("/approvals/{path}"), &fields(id, by)).await;
        assert!(answer.status == 200 && answer.text.contains(words), "{path} {id} by {by}: {answer:?}");
        assert!(answer.text.contains(&format!("<h1>{heading}</h1>")), "{path} {id} by {by}: {answer:?}");
    }
    let states = "select string_agg(state, ', ' order by id) from refundd.refunds";
    assert_eq!(scratch.text(states).await, "ready, review, review");
    assert!(see(&node, "/approvals").await.text.contains("Nothing waits for a second person"));
    for (fields, named) in [
        ("reason=r&by=bob".to_owned(), "none is chosen"),
        (format!("proposal={first}&reason=r&by=bob"), "<strong>Choose</strong>"),
        (format!("proposal={first}%403&by=bob"), "<strong>Reason</strong>"),
    ] {
        let refused = post_form(&node, None, "/approvals/approve", &fields).await;
        assert!(refused.status == 422 && refused.text.contains(named), "{fields}: {refused:?}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_refund_is_found_by_each_of_its_names_and_several_are_listed() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::answers(200, r#"{"id":"B-17"}"#).and_pays()]);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}bank_ref = \"/id\"\n")).await;
    let mut saved = refund("R-1", "acme");
    saved["payment_ref"] = "PAY/1".into();
    let saved = node.post("/v1/refunds", &saved).await.json();
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    let page = format!("/refunds/{}", saved["id"]);
    for name in ["R-1", saved["request_id"].as_str().unwrap(), "B-17", "PAY%2F1"] {
        assert_eq!(leads_to(&see(&node, &format!("/refunds?q={name}")).await), page, "{name}");
    }
    let by_id = leads_to(&see(&node, &format!("/refunds?q={}", saved["id"])).await).to_owned();
    assert_eq!(by_id, format!("{page}?done=found_by_id"));
    let shown = see(&node, &by_id).await.text;
    assert!(shown.contains("Found by its id, 1. Its ref is <strong>") && shown.contains("R-1"), "{shown}");
    let not_an_id = see(&node, "/refunds?q=0001").await;
    assert!(not_an_id.status == 200 && not_an_id.text.contains("No refund has"), "{not_an_id:?}");
    assert!(see(&node, &page).await.text.contains("B-17"));
    let mut second = refund("R-2", "acme");
    second["payment_ref"] = "PAY/1".into();
    assert_eq!(node.post("/v1/refunds", &second).await.status, 201);
    let list = see(&node, "/refunds?q=PAY%2F1").await;
    assert!(list.status == 200 && list.text.contains("2 refunds"), "{list:?}");
    assert_eq!(rows(&list.text), 2, "{list:?}");
    let none = see(&node, "/refunds?q=B-18").await;
    assert!(none.status == 200 && none.text.contains("No refund has"), "{none:?}");
    node.stop().await;
}

#[tokio::test]
async fn the_story_on_the_page_says_who_moved_a_refund_and_where_to() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO_CHANNELS).await;
    for channel in ["acme", "other"] {
        scratch.pause(channel, "so that nothing is sent", "test").await;
    }
    scratch.insert("acme", "R-", 1).await;
    let [from, to, who, why] = ["acme", "other", "ann", "the contract ended"].map(str::to_owned);
    let order = Move { from, to, who, why };
    let moved = scratch.store.move_never_sent(&[(RefundId(1), None)], &order).await.unwrap();
    assert_eq!(moved.len(), 1);
    let page = see(&node, "/refunds/1").await.text;
    for words in ["<strong>Moved</strong>", "ann moved it from acme", "to other", "the contract ended"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    node.stop().await;
}

#[tokio::test]
async fn events_are_paged_and_chosen_by_channel_and_time() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO_CHANNELS).await;
    let rows_of = "
        insert into refundd.events (at, kind, channel, who, reason)
        select now() - n * interval '1 minute', 'paused', 'acme', 'ann', 'reason ' || n from generate_series(1, 150) n;
        insert into refundd.events (at, kind, channel, who, refund_id, reason)
        values (now() - interval '5 hours', 'cancelled', 'other', 'bob', 7, 'twice')";
    scratch.connect().await.execute(rows_of).await.unwrap();
    let first = see(&node, "/events?channel=acme").await.text;
    assert_eq!(rows(&first), 100, "{first}");
    let next = first.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = see(&node, &next.replace("&amp;", "&")).await.text;
    assert!(second.contains("reason 150") && !second.contains("reason 90<"), "{second}");
    assert_eq!(rows(&second), 51, "the event of the new channel is one, too: {second}");
    assert!(!second.contains("rel=\"next\""), "{second}");
    let late = see(&node, "/events?channel=acme&from=90m30s&to=60m30s").await.text;
    assert_eq!(rows(&late), 30, "{late}");
    let other = see(&node, "/events?channel=other&to=1h").await.text;
    assert_eq!(rows(&other), 1, "{other}");
    for words in ["cancelled", "bob", "twice", "href=\"/refunds/7\""] {
        assert!(other.contains(words), "{words}: {other}");
    }
    node.stop().await;
}

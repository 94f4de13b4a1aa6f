//! The events: each change leaves one, with who, when, why, before and after; nobody changes one, and a send leaves none.

mod in_a_browser;
mod kept;
mod kinds;

use std::time::Duration;

use playground::bank::Step;
use refundd::caller::Names;
use refundd::refund::{RefundId, State};
use refundd::store::{EventFilter, Store};
use serde_json::{Value, json};

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

const LIMITED: &str = r#"
[limit.acme]
permits = 50
per = "1s"
[channel.acme]
endpoint = "http://{bank}/acme/refunds?key=hunter2"
limits = ["acme"]
timeout = "1s"
connect_timeout = "1s"
"#;

/// The events of this kind, newest first.
async fn of_kind(scratch: &Scratch, kind: &str) -> Vec<Value> {
    let filter = EventFilter { limit: 1000, ..EventFilter::of(Names::All) };
    let events = scratch.store.events(&filter).await.unwrap().events;
    let all = events.iter().filter(|event| event.kind == kind);
    all.map(|event| serde_json::to_value(event).unwrap()).collect()
}

#[tokio::test]
async fn sends_leave_no_event() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    let count = "select count(*) from refundd.events";
    let before = scratch.number(count).await;
    scratch.bank.next("acme", [Step::rejects(), Step::pays_but_says_500(), Step::too_many(1)]);
    scratch.insert("acme", "R-", 60).await;
    until("all are sent", async || scratch.count(State::Succeeded).await >= 57).await;
    assert_eq!(scratch.number(count).await, before);
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_asks_to_wait_five_times_in_a_row_is_an_event_and_so_is_the_end_of_that() {
    for (name, limits) in [("unlimited", "limits = []"), ("limited", "limits = [\"acme\"]")] {
        let channels = LIMITED
            .replace("limits = [\"acme\"]", &format!("{limits}\nmax_in_flight = 1\ncool_down = \"100ms\""));
        let scratch = Scratch::new().await;
        let refuses = Step::answers(429, r#"{"error":"too many requests"}"#);
        // On a busy machine a refusal may come so late that it counts as a first one again.
        scratch.bank.then("acme", refuses);
        let node = TestNode::start(&scratch, name, &channels).await;
        scratch.insert("acme", &format!("{name}-"), 3).await;
        until("five in a row are an event", async || !of_kind(&scratch, "bank_refusing").await.is_empty())
            .await;
        scratch.bank.then("acme", Step::pays());
        until("all are sent", async || {
            scratch.count(State::Ready).await + scratch.count(State::Sending).await == 0
        })
        .await;
        let began = of_kind(&scratch, "bank_refusing").await;
        assert_eq!(began.len(), 1, "{name}: {began:?}");
        assert_eq!((&began[0]["after"]["refusals"], &began[0]["who"]), (&json!(5), &json!("its bank")));
        assert!(began[0]["reason"].as_str().unwrap().contains("429"), "{began:?}");
        // Recovery clears what has been over for some time.
        scratch.sql("update refundd.channels set cool_until = now() - interval '1 hour'").await;
        until("the end is an event", async || of_kind(&scratch, "bank_refusing_ended").await.len() == 1)
            .await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_reload_leaves_what_changed_of_each_channel_and_limit_without_secrets() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    let name = node.daemon.name().to_owned();
    let added = of_kind(&scratch, "channel_added").await;
    assert_eq!((added.len(), &added[0]["who"]), (1, &json!(name)), "{added:?}");
    let added_limit = of_kind(&scratch, "limit_added").await;
    assert_eq!((&added_limit[0]["limit"], &added_limit[0]["after"]["permits"]), (&json!("acme"), &json!(50)));
    // The same file once more changes nothing.
    node.daemon.reload(scratch.config("a", LIMITED)).await.unwrap();
    let slower = LIMITED.replace("timeout = \"1s\"\nconnect", "timeout = \"2s\"\nconnect");
    let slower = slower.replace("permits = 50", "permits = 20");
    node.daemon.reload(scratch.config("a", &slower)).await.unwrap();
    let changed = of_kind(&scratch, "channel_changed").await;
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(
        (&changed[0]["before"]["timeout"], &changed[0]["after"]["timeout"]),
        (&json!("1s"), &json!("2s"))
    );
    assert_eq!(changed[0]["before"].get("connect_timeout"), None, "only what differs: {changed:?}");
    assert_eq!((&changed[0]["channel"], &changed[0]["who"]), (&json!("acme"), &json!(name)));
    let limit = of_kind(&scratch, "limit_changed").await;
    assert_eq!(limit.len(), 1, "{limit:?}");
    assert_eq!((&limit[0]["before"]["permits"], &limit[0]["after"]["permits"]), (&json!(50), &json!(20)));
    let all = scratch.text("select string_agg(e::text, ' ') from refundd.events e").await;
    assert!(!all.contains("hunter2"), "{all}");
    let joined = of_kind(&scratch, "node_joined").await;
    assert_eq!((joined.len(), &joined[0]["who"]), (1, &json!(name)));
    node.stop().await;
    let left = of_kind(&scratch, "node_left").await;
    assert_eq!((left.len(), &left[0]["who"], &left[0]["reason"]), (1, &json!(name), &json!("it stopped")));
}

#[tokio::test]
async fn decisions_and_cancellations_leave_who_before_after_and_why() {
    // Longer than a name in Postgres, which has 63 bytes.
    const WHY: &str =
        "the bank says: no. It looked into its own ledger at 21:44 UTC, and found neither of the two sends";
    let scratch = Scratch::with_refunds(2).await;
    scratch.lease("id = 1", "first_sent_at = now()").await;
    scratch.release("id = 1", "state = 'review'").await;
    scratch.decide(RefundId(1), State::Failed, WHY, "ann").await;
    scratch.store.cancel(RefundId(2), None, &refundd::store::Canceller::producer(Names::All)).await.unwrap();
    let decided = of_kind(&scratch, "decided").await;
    assert_eq!(decided.len(), 1, "{decided:?}");
    assert_eq!((&decided[0]["who"], &decided[0]["reason"]), (&json!("ann"), &json!(WHY)));
    assert_eq!((&decided[0]["refund_id"], &decided[0]["channel"]), (&json!(1), &json!("acme")));
    assert_eq!(
        (&decided[0]["before"]["state"], &decided[0]["after"]["state"]),
        (&json!("review"), &json!("failed"))
    );
    let cancelled = of_kind(&scratch, "cancelled").await;
    assert_eq!((cancelled.len(), &cancelled[0]["who"]), (1, &json!("its producer")), "{cancelled:?}");
    assert_eq!(cancelled[0]["before"]["state"], "ready");
    // A decision that is refused leaves none.
    scratch.decide(RefundId(2), State::Ready, "again", "ann").await;
    assert_eq!(of_kind(&scratch, "decided").await.len(), 1);
}

#[tokio::test]
async fn a_change_that_is_rolled_back_leaves_no_event() {
    let scratch = Scratch::with_refunds(1).await;
    let mut connection = scratch.connect().await;
    let mut work = sqlx::Connection::begin(&mut connection).await.unwrap();
    sqlx::query(
        "update refundd.refunds set state = 'cancelled', settled_at = now(), reason = 'cancelled by x'",
    )
    .execute(&mut *work)
    .await
    .unwrap();
    work.rollback().await.unwrap();
    assert_eq!(of_kind(&scratch, "cancelled").await.len(), 0);
}

#[tokio::test]
async fn events_are_read_page_by_page_and_none_comes_twice_or_is_left_out() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for nth in 0..7 {
        scratch.pause("acme", &format!("reason {nth}"), "ann").await;
    }
    // Times repeat within one transaction.
    scratch.sql("insert into refundd.events (kind, channel, who) select 'paused', 'acme', 'n' || n from generate_series(1, 6) n").await;
    let all = node.get("/v1/events?channel=acme&limit=1000").await.json();
    assert_eq!(all["next"], Value::Null, "{all}");
    let all = all["events"].as_array().unwrap().clone();
    assert_eq!(all.len(), 14, "13 pauses and the channel itself");
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let page = node.get(&format!("/v1/events?channel=acme&limit=4{after}")).await.json();
        pages.extend(page["events"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(pages, all);
    let none = node.get("/v1/events?refund_id=4711").await.json();
    assert_eq!(none, json!({ "events": [], "next": null }));
    scratch.sql("insert into refundd.events (at, kind, channel, who) values (now() - interval '2 hours', 'paused', 'acme', 'x')").await;
    let young = node.get("/v1/events?channel=acme&since_seconds=3600").await.json();
    assert_eq!(young["events"].as_array().unwrap(), &all);
    assert_eq!(node.get("/v1/events?chanel=acme").await.status, 422);
    node.stop().await;
}

#[tokio::test]
async fn the_log_shows_a_channel_a_refund_and_everything_one_line_an_event() {
    let scratch = Scratch::with_refunds(1).await;
    let file = file(&scratch.file("cli", UNLIMITED));
    let run = |args: &[&str]| {
        let output = refundd(file.path(), args);
        (output.status.code(), text(&output))
    };
    let (code, said) =
        run(&["pause", "acme", "--reason", "bank's maintenance", "--for", "2h", "--by", "ann"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(run(&["resume", "acme", "--reason", "it is over", "--by", "bob"]).0, Some(0));
    scratch.store.cancel(RefundId(1), None, &refundd::store::Canceller::producer(Names::All)).await.unwrap();
    let (code, said) = run(&["log", "acme"]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(
        lines[0].contains("cancelled")
            && lines[0].contains("refund 1")
            && lines[0].contains("by its producer")
    );
    assert!(
        lines[1].contains("resumed") && lines[1].contains("by bob") && lines[1].ends_with(": \"it is over\"")
    );
    assert!(
        lines[2].contains("paused") && lines[2].contains("by ann") && lines[2].contains("until="),
        "{said}"
    );
    assert!(lines[3].contains("channel_added"), "{said}");
    for about in ["R-1", "1"] {
        let (_, said) = run(&["log", about]);
        assert!(said.starts_with("Events of refund 1 (R-1):\n"), "{about}: {said}");
        assert_eq!(said.lines().count(), 2, "{about}: {said}");
        assert!(said.contains("state=ready") && said.contains("-> state=cancelled"), "{said}");
    }
    let cut = refundd(file.path(), &["log", "acme", "--json", "--most", "2"]);
    let [json, note] = [&cut.stdout, &cut.stderr].map(|output| String::from_utf8_lossy(output));
    assert!(note.starts_with("There may be older events: ask for more with --most"), "{note}");
    let whole = refundd(file.path(), &["log", "acme", "--json", "--most", "5"]);
    assert!(whole.stderr.is_empty(), "{}", text(&whole));
    let events: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&Value> = events.iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["cancelled", "resumed"]);
    let (code, said) = run(&["log", "R-2"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`R-2` is no channel, and no refund's ref, id or request id"), "{said}");
    assert_eq!(run(&["log", "--since", "1us"]), (Some(0), "No event matches.\n".to_owned()));
}

#[tokio::test]
async fn no_text_in_an_event_commands_the_terminal_of_the_log() {
    let scratch = Scratch::new().await;
    scratch.sql("insert into refundd.events (kind, channel, who, reason) values ('paused', 'acme', E'\\u001b[2J', E'x\\r\\ny')").await;
    let file = file(&scratch.file("cli", UNLIMITED));
    for args in [&["log"] as &[&str], &["log", "--json"]] {
        let said = text(&refundd(file.path(), args));
        assert_eq!(said.lines().count(), 1, "{said:?}");
        assert!(!said.contains('\u{1b}') && !said.contains('\r'), "{said:?}");
    }
}

#[tokio::test]
async fn not_even_the_owner_changes_an_event_or_drops_a_young_one() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    for (statement, words) in [
        ("update refundd.events set who = 'ann'", "append-only"),
        ("truncate refundd.events", "append-only"),
        ("delete from refundd.events", "younger than refundd.retention allows"),
    ] {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains(words), "{statement}: {error}");
    }
}

#[tokio::test]
async fn old_events_go_as_the_configuration_and_the_owner_say() {
    let scratch = Scratch::new().await;
    let events = "select count(*) from refundd.events where who = 'old'";
    scratch.sql("insert into refundd.events (kind, who, at) select 'paused', 'old', now() - n * interval '1 day' + interval '1 hour' from generate_series(1, 100) n").await;
    let store: &Store = &scratch.store;
    assert_eq!(store.forget_events(Duration::from_hours(24)).await.unwrap(), 70, "30 days stay in any case");
    assert_eq!(scratch.number(events).await, 30);
    scratch.keep_evidence_for_a_moment().await;
    assert_eq!(store.forget_events(Duration::from_hours(10 * 24 + 12)).await.unwrap(), 20);
    assert_eq!(scratch.number(events).await, 10);
}

#[tokio::test]
async fn a_retention_of_months_is_counted_in_one_way_and_stops_no_forgetting() {
    let scratch = Scratch::new().await;
    // Half a year is 180 days of seconds, and 181 to 184 days of the calendar.
    scratch.sql("update refundd.retention set at_least = '6 months' where evidence = 'events'").await;
    scratch.sql("insert into refundd.events (kind, who, at) select 'paused', 'old', now() - days * interval '1 day' from unnest('{179.5, 180.5, 200}'::float8[]) days").await;
    assert_eq!(scratch.store.forget_events(Duration::from_hours(24)).await.unwrap(), 2);
    let error = scratch.sql_error("delete from refundd.events where who = 'old'").await;
    assert!(error.to_string().contains("younger than refundd.retention allows"), "{error}");
}

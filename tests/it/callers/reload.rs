//! Tokens are changed on a running node by SIGHUP, and come out of no door.

use std::process::Command;

use refundd::caller::token::Token;
use refundd::config::Config;
use rustix::process::Signal;
use sqlx::Executor;

use super::{CallerTables, get, get_at, in_an_hour};
use crate::cli::{file, text};
use crate::harness::{NodeProcess, Scratch, TestNode, until};

#[tokio::test]
async fn a_signal_puts_new_tokens_in_force_and_old_ones_out_and_shows_none() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let (old, next) =
        (callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]"), Token::mint().unwrap());
    let gone = callers.caller("gone", "may = [\"look\"]\nchannels = [\"acme\"]");
    let trace = |text: String| text.replace("level = \"info\"", "level = \"trace\"");
    let config = trace(scratch.file("a", &callers.with_channels(super::TWO_CHANNELS)));
    let mut node = NodeProcess::start(&scratch, "a", &callers.with_channels(super::TWO_CHANNELS));
    node.rewrite(&config);
    let address = node.address().unwrap();
    let mut answers = Vec::new();
    let mut reloads = 0;
    let mut reload = async |node: &NodeProcess| {
        reloads += 1;
        node.signal(Signal::HUP);
        let lines = || node.log().iter().filter(|line| line.contains("Configuration read again")).count();
        until("the file is read again", async || lines() == reloads).await;
    };
    reload(&node).await;
    let mut expect = async |tokens: [(&Token, u16); 3]| {
        for (token, expected) in tokens {
            let (status, answer) = get_at(&address, Some(token), "/v1/refunds").await;
            assert_eq!(status, expected, "{answer}");
            answers.push(answer);
        }
    };
    expect([(&old, 200), (&next, 401), (&gone, 200)]).await;
    // Two tokens while the caller changes.
    callers.tokens("shop", &[(&old, in_an_hour()), (&next, in_an_hour())]);
    reload(&node).await;
    expect([(&old, 200), (&next, 200), (&gone, 200)]).await;
    // The old token's line goes, and a whole caller.
    callers.tokens("shop", &[(&next, in_an_hour())]);
    let (without, _) = config.split_once("[caller.gone]").unwrap();
    node.rewrite(without);
    reload(&node).await;
    expect([(&old, 401), (&next, 200), (&gone, 401)]).await;
    // A faulty tokens file leaves everything as it was, and is not shown.
    std::fs::write(callers.file("shop"), format!("{}\n", old.expose())).unwrap();
    node.signal(Signal::HUP);
    node.wait_for_line("holds a token itself");
    expect([(&old, 401), (&next, 200), (&gone, 401)]).await;

    let path = file(without);
    let check = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .arg("--config")
        .arg(path.path())
        .arg("check")
        .output()
        .unwrap();
    assert!(!check.status.success());
    let shown = format!("{}{}{}", node.log().join("\n"), answers.concat(), text(&check));
    for token in [&old, &next, &gone] {
        let (_, secret) = token.expose().rsplit_once('_').unwrap();
        let stored = token.stored(in_an_hour()).to_string();
        assert!(!shown.contains(secret), "a token stands in the log or in an answer");
        assert!(
            !shown.contains(stored.split(' ').nth(1).unwrap()),
            "a hash stands in the log or in an answer"
        );
    }
}

#[tokio::test]
async fn a_reload_names_the_callers_and_sections_that_changed_in_the_log_and_in_an_event() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    callers.caller("gone", "may = [\"look\"]\nchannels = [\"acme\"]");
    let before = callers.with_channels(super::TWO_CHANNELS);
    let mut node = NodeProcess::start(&scratch, "a", &before);
    let published = "select count(*) from refundd.nodes where settings ? 'caller.gone'";
    until("the node has published its callers", async || scratch.number(published).await == 1).await;
    let (after, _) = before.split_once("[caller.gone]").unwrap();
    let after = after.replace("[\"look\"]", "[\"look\", \"metrics\"]").replacen("100", "99", 1);
    let after = format!("{after}[review]\nsecond_person_above = {{ EUR = 100000 }}\n");
    node.rewrite(&scratch.file("a", &after).replace("level = \"info\"", "level = \"debug\""));
    node.signal(Signal::HUP);
    let changes = "channel.acme changed, caller.gone removed, caller.shop changed, limit.acme changed, log changed, review added";
    node.wait_for_line(&format!("Configuration read again and in force: {changes}"));
    let event = "select coalesce(string_agg(who || ' ' || before::text || ' ' || after::text, '; '), '')
                   from refundd.events where kind = 'node_changed'";
    until("the event is written", async || !scratch.text(event).await.is_empty()).await;
    let event = scratch.text(event).await;
    for part in
        ["a#", "caller.gone", "\"may\": [\"look\", \"metrics\"]", "{\"EUR\": 100000}", "\"level\": \"debug\""]
    {
        assert!(event.contains(part), "{part}: {event}");
    }
    assert!(!event.contains(';'), "one event for one reload: {event}");
    // The same file once more.
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force: no section changed");
    let files = ["shop", "gone"].map(|name| std::fs::read_to_string(callers.file(name)).unwrap());
    let published = scratch.text("select string_agg(settings::text, ' ') from refundd.nodes").await;
    let shown = format!("{event}{published}{}", node.log().join("\n"));
    for stored in files {
        let hash = stored.split(' ').nth(1).unwrap();
        assert!(hash.len() == 64 && !shown.contains(hash), "a hash stands in the log or in an event");
    }
}

#[tokio::test]
async fn a_file_that_was_cut_off_before_its_callers_opens_no_route() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    let mut node = NodeProcess::start(&scratch, "a", &callers.with_channels(super::TWO_CHANNELS));
    let address = node.address().unwrap();
    node.rewrite(&scratch.file("a", super::TWO_CHANNELS));
    node.signal(Signal::HUP);
    node.wait_for_line("the file has no [caller.NAME] any more");
    for (token, expected) in [(&shop, 200), (&Token::mint().unwrap(), 401)] {
        let (status, answer) = get_at(&address, Some(token), "/v1/refunds").await;
        assert_eq!(status, expected, "{answer}");
    }
}

#[tokio::test]
async fn no_debug_text_has_a_token_or_its_hash() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let token = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    let config: Config = scratch.config("a", &callers.with_channels(super::TWO_CHANNELS));
    let before = format!("{config:?} {token:?}");
    let node = TestNode::run(config).await;
    assert_eq!(get(&node, &token, "/v1/refunds").await.status, 200);
    let shown = format!("{before} {:?}", node.daemon);
    node.stop().await;
    let (_, secret) = token.expose().rsplit_once('_').unwrap();
    let stored = token.stored(in_an_hour()).to_string();
    assert!(!shown.contains(secret) && !shown.contains(stored.split(' ').nth(1).unwrap()));
}

#[test]
fn a_new_token_matches_the_line_that_is_printed_with_it() {
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_refundd")).arg("token").args(arguments).output().unwrap()
    };
    let made = run(&["--json", "--valid-for", "90d"]);
    assert!(made.status.success(), "{}", text(&made));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let line = refundd::caller::token::StoredToken::read(made["line"].as_str().unwrap()).unwrap();
    assert!(line.is(made["token"].as_str().unwrap()));
    let days = (line.expires - jiff::Timestamp::now()).get_seconds() / 86_400;
    assert!((89..=90).contains(&days), "{days}");
    let for_people = run(&[]);
    assert!(text(&for_people).contains("rfd_") && text(&for_people).contains("tokens_file"));
    for (wrong, hint) in [
        ("0s", "longer than nothing"),
        ("-1d", "cannot be negative"),
        ("soon", "is not a duration"),
        ("30", "did you mean \"30s\"?"),
        ("1y", "no fixed length"),
        ("99999999d", ""),
    ] {
        let refused = run(&[&format!("--valid-for={wrong}")]);
        assert!(!refused.status.success() && text(&refused).contains(hint), "{wrong}: {}", text(&refused));
    }
}

/// After the new channels run, a reload ends breakers that are switched off and counts refunds at old addresses.
#[tokio::test]
async fn a_caller_that_a_reload_removes_is_refused_while_the_reload_still_waits_for_postgres() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let keys = "may = [\"look\"]\nchannels = [\"acme\"]";
    let (kept, gone) = (callers.caller("kept", keys), callers.caller("gone", keys));
    let node = callers.node(&scratch).await;
    assert_eq!(get(&node, &gone, "/v1/refunds").await.status, 200);
    let file = callers.with_channels(super::TWO_CHANNELS);
    let (without, _) = file.split_once("[caller.gone]").unwrap();
    let mut lock = scratch.connect().await;
    lock.execute("begin; lock table refundd.suspensions in exclusive mode").await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                      and query like '%the configuration switches the breaker off%'";
    let asking = async {
        until("the reload waits for the lock", async || scratch.number(waiting).await > 0).await;
        for (token, status) in [(&kept, 200), (&gone, 401)] {
            assert_eq!(get(&node, token, "/v1/refunds").await.status, status);
        }
        lock.execute("rollback").await.unwrap();
    };
    let (reloaded, ()) = tokio::join!(node.daemon.reload(scratch.config("a", without)), asking);
    assert_eq!(reloaded.unwrap().sections, ["caller.gone removed"]);
    node.stop().await;
}

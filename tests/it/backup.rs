//! A backup: what `pg_dump` writes is the whole database, and nodes go on with what `pg_restore` makes of it.

use std::path::Path;
use std::process::Command;

use playground::bank::Step;
use refundd::refund::State;
use refundd::store::{Pause, Store};

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};
use crate::prove::prove;

/// Runs a program of Postgres.
fn run(program: &str, args: &[&str]) {
    // It lies beside the server, where a link on the PATH may lead.
    let server = playground::find::postgres().unwrap().join("postgres").canonicalize().unwrap();
    let output = Command::new(server.with_file_name(program)).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// As docs/evidence.md says it.
async fn dump_and_restore(scratch: &mut Scratch, file: &Path) {
    let file = file.to_str().unwrap();
    run("pg_dump", &["--format=custom", "--file", file, "--dbname", &scratch.owner_url]);
    let name = format!("{}_restored", scratch.name);
    SERVERS.postgres.create_database(&name, None).await.unwrap();
    scratch.owner_url = SERVERS.postgres.url(&name);
    scratch.database_url = SERVERS.postgres.node_url(&name);
    run("pg_restore", &["--exit-on-error", "--dbname", &scratch.owner_url, file]);
    scratch.store = Store::open(&scratch.database_url, None, 4).unwrap();
}

#[tokio::test]
async fn a_dump_restores_whole_its_chains_hold_and_nodes_go_on_with_it() {
    let mut scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.bank.next("acme", [Step::rejects(), Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 20).await;
    until("all ended or wait for a person", async || {
        let mut over = 0;
        for state in [State::Succeeded, State::Failed, State::Review, State::Unknown] {
            over += scratch.count(state).await;
        }
        over == 20
    })
    .await;
    scratch.pause("acme", "a backup", "ann").await;
    scratch.insert("acme", "S-", 5).await;
    node.stop().await;
    while !scratch.store.seal_journal(1_000).await.unwrap().is_done {}

    let rows = "select md5(string_agg(r::text, ',' order by r.id)) from refundd.refunds r";
    let journal = "select md5(string_agg(a::text, ',' order by a.id)) from refundd.attempts a";
    let events = "select md5(string_agg(e::text, ',' order by e.event_id)) from refundd.events e";
    let mut before = Vec::new();
    for each in [rows, journal, events] {
        before.push(scratch.text(each).await);
    }
    let folder = tempfile::tempdir().unwrap();
    dump_and_restore(&mut scratch, &folder.path().join("payments.dump")).await;
    for (each, before) in [rows, journal, events].into_iter().zip(before) {
        assert_eq!(scratch.text(each).await, before, "{each}");
    }
    let lacking = scratch.store.lacking_rights().await.unwrap().rights;
    assert!(lacking.is_empty(), "{lacking:?}");
    let proof = prove(&scratch, &["--journal"]);
    assert_eq!(proof.status.code(), Some(0), "{}", text(&proof));
    // Its rules are there as well.
    let error = scratch.sql_error("delete from refundd.refunds").await;
    assert!(error.to_string().contains("is kept for ever"), "{error}");

    // The step of the runbook by which no id of a lost refund or proposal is given again.
    let step = "select setval(s, ";
    let step = include_str!("../../docs/runbook.md").split('`').find(|span| span.starts_with(step)).unwrap();
    scratch.sql(step).await;
    let proposal = scratch.number("select nextval('refundd.proposals_id_seq')").await;
    assert!(proposal > 1_000_000_000, "{proposal}");

    let sent = scratch.bank.look(|ledger| ledger.all().len());
    let node = TestNode::start(&scratch, "b", UNLIMITED).await;
    until("the node knows the pause", async || {
        node.get("/v1/channels/acme").await.json()["paused"]["reason"] == "a backup"
    })
    .await;
    assert_eq!(scratch.bank.look(|ledger| ledger.all().len()), sent);
    scratch.insert("acme", "T-", 5).await;
    scratch.resume("acme").await;
    until("what waited is sent, and what came after the restore", async || {
        scratch.bank.look(|ledger| ledger.all().len()) == sent + 10
    })
    .await;
    let first = scratch.number("select min(id) from refundd.refunds where refund_ref like 'T-%'").await;
    assert!(first > 1_000_000_000, "{first}");
    node.stop().await;
}

/// The arguments of a command line of the runbook; between quotes a space divides nothing.
fn arguments_of(line: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    for (nth, part) in line.split('"').enumerate() {
        if nth % 2 == 1 { arguments.push(part) } else { arguments.extend(part.split_whitespace()) }
    }
    arguments
}

#[tokio::test]
async fn a_restored_refund_that_a_bank_paid_ends_as_succeeded_by_the_commands_of_the_runbook() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "T-", 2).await;
    scratch.pause_all(&Pause { reason: "restored to 14:02", who: "ann", lasts: None }).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let about_the_refund = |line: &&str| line.starts_with("refundd ") && line.contains(" T-1@");
    let runbook = include_str!("../../docs/runbook.md").lines().map(str::trim);
    let commands: Vec<&str> = runbook.filter(about_the_refund).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let output = refundd(config.path(), &arguments_of(command)[1..]);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output));
        // The statement by which the runbook names many refunds finds it after the first command.
        if command.starts_with("refundd cancel") {
            let page = include_str!("../../docs/runbook.md");
            let start = page.find("select request_id || '@' || version").unwrap();
            let statement = page[start..].split('"').next().unwrap();
            let request_id = scratch.text("select request_id::text from refundd.refunds where id = 1").await;
            assert_eq!(scratch.text(statement).await, format!("{request_id}@2"));
        }
    }
    let all = "select string_agg(concat_ws(' ', refund_ref, state, bank_ref), ', ' order by id) from refundd.refunds";
    assert_eq!(scratch.text(all).await, "T-1 succeeded BB-1, T-2 ready");
}

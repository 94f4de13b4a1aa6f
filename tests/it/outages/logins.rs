//! A Postgres that lets a running node in no more: its password was changed, `pg_hba.conf` was, or a time-out ends its work.

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use hyper::StatusCode;
use playground::{PostgresOptions, PrivatePostgres};
use refundd::config::Config;
use refundd::daemon::Daemon;
use refundd::store::Store;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::limited;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until, within};
use crate::server_tls::put;

const ROLE: &str = "refundd_app";
const BY_PASSWORD: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

/// A Postgres that asks nodes for a password.
struct Guarded {
    postgres: PrivatePostgres,
    owner: PgConnection,
}

impl Guarded {
    async fn start() -> Guarded {
        let options = PostgresOptions { tcp: true, ..PostgresOptions::for_tests() };
        let postgres = PrivatePostgres::start_with(&options).await.unwrap();
        postgres.create_database("payments", None).await.unwrap();
        let store = Store::open(&postgres.url("payments"), None, 1).unwrap();
        store.migrate().await.unwrap();
        store.close().await;
        postgres.admit_nodes("payments").await.unwrap();
        let owner = PgConnection::connect(&postgres.url("postgres")).await.unwrap();
        let mut guarded = Guarded { postgres, owner };
        guarded.set_password("first").await;
        guarded.admit(BY_PASSWORD).await;
        guarded
    }

    fn config(&self, scratch: &Scratch, node: &str) -> Config {
        let port = self.postgres.port().unwrap();
        let url = format!("postgres://{ROLE}:first@127.0.0.1:{port}/payments?sslmode=disable");
        let text = scratch.file(node, &limited()).replace(&scratch.database_url, &url);
        Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, with this password in a file of this folder.
    fn config_by_file(&self, scratch: &Scratch, folder: &Path, password: &str) -> Config {
        let file = folder.join("password");
        write(&file, password).unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let url =
            format!("postgres://{ROLE}@127.0.0.1:{}/payments?sslmode=disable", self.postgres.port().unwrap());
        let by_file = format!("[postgres]\npassword_file = \"{}\"\n", file.display());
        let text = scratch.file("a", &limited()).replace(&scratch.database_url, &url);
        let text = text.replace("[postgres]\n", &by_file);
        Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"))
    }

    async fn set_password(&mut self, password: &str) {
        self.say(&format!("alter role {ROLE} password '{password}'")).await;
    }

    async fn admit(&mut self, rules: &str) {
        put(&self.postgres.folder().join("data"), "pg_hba.conf", rules);
        self.say("select pg_reload_conf()").await;
    }

    /// From now on each statement of a node needs a new connection.
    async fn end_connections(&self) {
        self.postgres.terminate_backends("payments").await.unwrap();
    }

    async fn say(&mut self, statement: &str) {
        self.owner.execute(AssertSqlSafe(statement)).await.unwrap();
    }
}

/// Waits until the node is away for this reason, and checks what callers are answered. Answers what the node says of it.
async fn is_away(node: &TestNode, reason: &str) -> String {
    let mut said = String::new();
    let began = std::time::Instant::now();
    while !said.contains(reason) {
        assert!(began.elapsed() < Duration::from_secs(30), "no `{reason}` in {said}");
        let answer = node.get("/health/ready").await;
        said = if answer.status == 503 { answer.text } else { String::new() };
    }
    assert!(said.contains("postgres-away"), "{said}");
    let refused = node.post("/v1/refunds", &refund("R-refused", "acme")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    assert!(refused.text.contains("postgres-away") && refused.headers.contains_key("retry-after"));
    until("the metric says so", async || node.get("/metrics").await.text.contains("refundd_postgres_up 0\n"))
        .await;
    said
}

/// Waits until the node works, and has it send one refund.
async fn works(scratch: &Scratch, node: &TestNode, refund_ref: &str) {
    within(Duration::from_secs(5), "it is ready", async || node.get("/health/ready").await.status == 200)
        .await;
    until("it takes a refund", async || {
        node.post("/v1/refunds", &refund(refund_ref, "acme")).await.status.is_success()
    })
    .await;
    let arrived = |l: &playground::bank::Ledger| l.all().iter().any(|a| &*a.refund_ref == refund_ref);
    assert!(scratch.bank.until(Duration::from_secs(10), arrived).await, "{refund_ref} was not sent");
}

#[tokio::test]
async fn a_changed_password_or_pg_hba_is_an_outage_that_says_why_and_ends_without_a_restart() {
    let scratch = Scratch::new().await;
    let mut guarded = Guarded::start().await;
    let node = TestNode::run(guarded.config(&scratch, "a")).await;
    works(&scratch, &node, "R-1").await;
    guarded.set_password("second").await;
    guarded.end_connections().await;
    let reason = is_away(&node, "password authentication failed").await;
    assert!(reason.contains("alter role"), "the way out: {reason}");

    let (waits, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let starting = Daemon::start(guarded.config(&scratch, "b"), || {
        waits.send(()).ok();
    });
    let mending = async {
        waiting.recv().await.expect("a node that starts waits");
        guarded.set_password("first").await;
        works(&scratch, &node, "R-2").await;
    };
    let (started, ()) = tokio::join!(starting, mending);
    started.unwrap().stop(tokio_util::sync::CancellationToken::new()).await;

    guarded.admit("local all all trust\nhost all all 127.0.0.1/32 reject\n").await;
    guarded.end_connections().await;
    is_away(&node, "pg_hba.conf").await;
    guarded.admit(BY_PASSWORD).await;
    works(&scratch, &node, "R-3").await;
    node.stop().await;
}

#[tokio::test]
async fn a_reload_takes_a_new_password_over_also_on_a_node_that_is_shut_out() {
    let (scratch, temporary) = (Scratch::new().await, tempfile::tempdir().unwrap());
    let mut guarded = Guarded::start().await;
    let folder = temporary.path();
    let node = TestNode::run(guarded.config_by_file(&scratch, folder, "first")).await;
    works(&scratch, &node, "R-1").await;
    guarded.set_password("second").await;
    let done = node.daemon.reload(guarded.config_by_file(&scratch, folder, "second")).await.unwrap();
    assert!(done.needs_restart.is_empty(), "{:?}", done.needs_restart);
    guarded.end_connections().await;
    works(&scratch, &node, "R-2").await;

    guarded.set_password("third").await;
    guarded.end_connections().await;
    is_away(&node, "password authentication failed").await;
    node.daemon.reload(guarded.config_by_file(&scratch, folder, "third")).await.unwrap();
    works(&scratch, &node, "R-3").await;

    let refused = node.daemon.reload(guarded.config_by_file(&scratch, folder, "wrong")).await.unwrap_err();
    assert!(format!("{refused:#}").contains("password authentication failed"), "{refused:#}");
    guarded.end_connections().await;
    works(&scratch, &node, "R-4").await;
    node.stop().await;
}

/// Postgres 17 ends a transaction so, where a role or the server has `transaction_timeout`.
#[tokio::test]
async fn a_save_that_a_time_out_of_transactions_ended_is_answered_503() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &limited()).await;
    scratch
        .sql("create function refundd.too_long() returns trigger language plpgsql as $$ begin raise 'too long' using errcode = '25P04'; end $$")
        .await;
    scratch
        .sql("create trigger too_long before insert on refundd.refunds execute function refundd.too_long()")
        .await;
    let refused = node.post("/v1/refunds", &refund("R-1", "acme")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    scratch.sql("drop trigger too_long on refundd.refunds").await;
    assert!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status.is_success());
    node.stop().await;
}

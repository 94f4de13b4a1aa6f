//! Measures how fast refunds are saved, compared with plain inserts into Postgres.
//!
//! The channel is paused meanwhile, so that nothing is sent.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::try_join_all;
use playground::Authority;
use playground::load::{ANY, CHANNEL, Caller, SingleCaller, body, end, save, unlimited};
use playground::place::write_private;
use playground::stage::{Addresses, NodeProcess, Stage};
use refundd::store::{Pause, Store};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::process::Command;

use crate::cpu::Watch;
use crate::figure::{Better, Notes};

const CLIENTS: u32 = 64;
/// Refunds of each client.
const SINGLES: u32 = 500;
/// In how many parts two ways of saving take turns.
const PARTS: u32 = 10;
const SET: i32 = 100_000;
/// A batch has the largest allowed size. A node reads two batches at a time.
const BATCH: u32 = 10_000;
const BATCHES: u32 = 10;
const BY_HAND: u32 = 20;
const FILE: u32 = 100_000;

const INSERT_SET: &str = "
    insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
    select 'set-' || n, 'acme', 'P-' || n, n, 'EUR' from generate_series(1, $1) n";

pub const INSERT_ONE: &str = "
    insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
    values ($1, 'acme', $2, $3, 'EUR')";

/// The same columns without constraints, triggers and states: an id, a unique ref, a time.
const BARE: &str = "
    create table bare (
        id bigint generated always as identity primary key, refund_ref text not null unique, channel text not null,
        payment_ref text not null, amount_minor bigint not null, currency text not null,
        created_at timestamptz not null default now())";

const INSERT_BARE: &str = "
    insert into bare (refund_ref, channel, payment_ref, amount_minor, currency) values ($1, 'acme', $2, $3, 'EUR')";

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let stage = Stage::set(crate::program(), ANY).await?;
    let node = stage.node("a", ANY, &unlimited(64)).await?;
    Store::open(&stage.database_url(), None, 1)?
        .pause(CHANNEL, &Pause { reason: "nothing shall be sent", who: "bench", lasts: None })
        .await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    database.execute(BARE).await.context("failed to make a bare table")?;
    save(&stage, "warm-", 2_000).await?;

    let caller = Caller::of(node.address);
    posts(&caller, "first", 10).await?;
    let watch = Watch::stage(&stage, std::slice::from_ref(&node)).process("clients", std::process::id());
    let before = watch.read();
    let posts = posts(&caller, "one", SINGLES).await?;
    let what = format!("single POSTs from {CLIENTS} clients");
    for who in ["Postgres", "nodes", "clients"] {
        let each = watch.since(&before)[who] * 1_000_000.0 / f64::from(CLIENTS * SINGLES);
        notes.add(format!("{what}: core time of {who}"), "µs a row", Better::Less, each);
    }
    notes.add(what, "rows/s", Better::More, posts);
    let (clear, secured) = one_connection_each(&stage, &node).await?;
    notes.add(
        "the same over TLS with a token ÷ in clear, one connection each",
        "×",
        Better::More,
        secured / clear,
    );
    let plain = inserts(&stage, INSERT_ONE).await?;
    notes.add(
        format!("Postgres alone: single inserts from {CLIENTS} connections, same table"),
        "rows/s",
        Better::Neither,
        plain,
    );
    let bare = inserts(&stage, INSERT_BARE).await?;
    notes.add(
        format!("Postgres alone: single inserts from {CLIENTS} connections, bare table"),
        "rows/s",
        Better::Neither,
        bare,
    );
    notes.add("single POSTs ÷ Postgres alone, same table", "×", Better::More, posts / plain).at_least(3.0);
    notes.add("single POSTs ÷ Postgres alone, bare table", "×", Better::More, posts / bare);
    notes.add("`refundd enqueue`, a process each", "rows/s", Better::More, by_hand(&stage).await?);
    notes.add(
        format!("`refundd import`, a file of {FILE} lines"),
        "rows/s",
        Better::More,
        import(&stage).await?,
    );
    let batches = batches(&caller).await?;
    notes.add(format!("batches of {BATCH} over HTTP, two at a time"), "rows/s", Better::More, batches);
    let began = Instant::now();
    sqlx::query(INSERT_SET).bind(SET).execute(&mut database).await.context("failed to save a set")?;
    let set = f64::from(SET) / began.elapsed().as_secs_f64();
    notes.add(format!("{SET} rows by one SQL statement"), "rows/s", Better::More, set);
    notes.add("the better of batch and SQL", "rows/s", Better::More, set.max(batches)).at_least(100_000.0);
    database.close().await?;
    end(stage, vec![node]).await
}

/// Saves over HTTP. Every client sends its next request after the answer to the last one. Returns rows a second.
async fn posts(caller: &Caller, prefix: &'static str, each: u32) -> anyhow::Result<f64> {
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|client| {
        let caller = caller.clone();
        tokio::spawn(async move {
            for n in 0..each {
                caller.save(&format!("{prefix}-{client}-{n}")).await?;
            }
            anyhow::Ok(())
        })
    });
    for ended in try_join_all(clients).await? {
        ended?;
    }
    Ok(f64::from(CLIENTS * each) / began.elapsed().as_secs_f64())
}

/// Saves over one connection for each client: in clear text through this node, and over TLS with a token through another
/// node. Each goes first half of the time. Returns rows a second of both.
async fn one_connection_each(stage: &Stage, node: &NodeProcess) -> anyhow::Result<(f64, f64)> {
    let authority = Authority::new()?;
    let folder = tempfile::tempdir()?;
    let (certificate, key) = authority.client_files("127.0.0.1")?;
    let at = Addresses {
        http: format!(
            "tls = {{ certificate_file = \"{}\", key_file = \"{}\" }}\n",
            certificate.display(),
            key.display()
        ),
        ..stage.addresses()
    };
    let (token, tokens) = token(folder.path()).await?;
    let caller = format!(
        "[caller.shop]\ntokens_file = \"{}\"\nmay = [\"enqueue\"]\nchannels = [\"*\"]\n",
        tokens.display()
    );
    let secured = stage.node_at("b", ANY, &(unlimited(64) + &caller), &at).await?;
    let tls = authority.client()?;
    let mut took = [Duration::ZERO; 2];
    for part in 0..PARTS {
        for is_secured in [part % 2 == 0, part % 2 == 1] {
            let mut callers = Vec::new();
            for _ in 0..CLIENTS {
                callers.push(if is_secured {
                    SingleCaller::over_tls(secured.address, &tls, &token).await?
                } else {
                    SingleCaller::in_clear(node.address).await?
                });
            }
            let began = Instant::now();
            let clients = callers.into_iter().enumerate().map(|(client, mut caller)| {
                tokio::spawn(async move {
                    for n in 0..SINGLES / PARTS {
                        caller.save(&format!("single-{is_secured}-{part}-{client}-{n}")).await?;
                    }
                    anyhow::Ok(())
                })
            });
            for ended in try_join_all(clients).await? {
                ended?;
            }
            took[usize::from(is_secured)] += began.elapsed();
        }
    }
    secured.stop().await?;
    let rows = f64::from(CLIENTS * (SINGLES / PARTS) * PARTS);
    Ok((rows / took[0].as_secs_f64(), rows / took[1].as_secs_f64()))
}

/// Makes a token. Returns it, and the file with its line.
async fn token(folder: &Path) -> anyhow::Result<(String, PathBuf)> {
    let made = Command::new(crate::program()).args(["token", "--json"]).output().await?;
    let made: serde_json::Value =
        serde_json::from_slice(&made.stdout).context("`refundd token` gave no JSON")?;
    let text =
        |name: &str| made[name].as_str().map(str::to_owned).with_context(|| format!("no `{name}`: {made}"));
    let tokens = folder.join("shop.tokens");
    write_private(&tokens, &(text("line")? + "\n"))?;
    Ok((text("token")?, tokens))
}

/// Saves over plain connections to Postgres, each row in its own transaction. Returns rows a second.
async fn inserts(stage: &Stage, statement: &'static str) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for client in 0..CLIENTS {
        let mut connection = PgConnection::connect(&stage.database_url()).await?;
        insert(&mut connection, statement, format!("{}-warm-{client}", statement.len())).await?;
        connections.push(connection);
    }
    let began = Instant::now();
    let clients = connections.into_iter().enumerate().map(|(client, mut connection)| {
        tokio::spawn(async move {
            for n in 0..SINGLES {
                insert(&mut connection, statement, format!("{}-{client}-{n}", statement.len())).await?;
            }
            anyhow::Ok(connection)
        })
    });
    let ended = try_join_all(clients).await?;
    let took = began.elapsed().as_secs_f64();
    for connection in ended {
        connection?.close().await?;
    }
    Ok(f64::from(CLIENTS * SINGLES) / took)
}

async fn insert(connection: &mut PgConnection, statement: &'static str, name: String) -> anyhow::Result<()> {
    sqlx::query(AssertSqlSafe(statement)).bind(&name).bind("P").bind(5_i64).execute(connection).await?;
    Ok(())
}

async fn batches(caller: &Caller) -> anyhow::Result<f64> {
    let bodies: Vec<Bytes> = (0..BATCHES)
        .map(|batch| {
            let refunds: Vec<_> = (0..BATCH).map(|n| body(&format!("batch-{batch}-{n}"))).collect();
            Bytes::from(serde_json::Value::from(refunds).to_string())
        })
        .collect();
    let began = Instant::now();
    let halves = bodies.chunks(bodies.len() / 2).map(|half| async move {
        for body in half {
            let (status, verdicts) = caller.post("/v1/refunds/batch", body.clone()).await?;
            let created = verdicts.windows(12).filter(|w| w == b"\"status\":201").count();
            if status != 200 || created != BATCH as usize {
                bail!("{status}, and {created} of {BATCH} were saved");
            }
        }
        Ok(())
    });
    try_join_all(halves).await?;
    Ok(f64::from(BATCH * BATCHES) / began.elapsed().as_secs_f64())
}

/// Saves with `refundd enqueue`, one process after the other, as a person or a script does. Returns rows a second.
async fn by_hand(stage: &Stage) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("refundd.toml");
    write_private(&file, &stage.file("hand", ANY, &unlimited(64)))?;
    let began = Instant::now();
    for n in 0..BY_HAND {
        let mut enqueue = command("enqueue", &file);
        enqueue.args([
            "--channel",
            CHANNEL,
            "--payment-ref",
            "P",
            "--amount-minor",
            "5",
            "--currency",
            "EUR",
        ]);
        run(enqueue.args(["--refund-ref", &format!("hand-{n}")])).await?;
    }
    Ok(f64::from(BY_HAND) / began.elapsed().as_secs_f64())
}

async fn import(stage: &Stage) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let (file, lines) = (folder.path().join("refundd.toml"), folder.path().join("refunds.ndjson"));
    write_private(&file, &stage.file("hand", ANY, &unlimited(64)))?;
    let refunds: Vec<String> = (0..FILE).map(|n| body(&format!("line-{n}")).to_string()).collect();
    std::fs::write(&lines, refunds.join("\n") + "\n")?;
    let began = Instant::now();
    run(command("import", &file).arg(&lines)).await?;
    Ok(f64::from(FILE) / began.elapsed().as_secs_f64())
}

fn command(name: &str, config: &Path) -> Command {
    let mut command = Command::new(crate::program());
    command.arg(name).arg("--config").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

async fn run(command: &mut Command) -> anyhow::Result<()> {
    let ended = command.status().await?;
    if !ended.success() {
        bail!("{command:?} ended with {ended}");
    }
    Ok(())
}

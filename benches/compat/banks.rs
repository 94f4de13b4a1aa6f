//! Servers that banks run: nginx, gunicorn and `HAProxy` before the pretend bank, which keeps the ledger.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use playground::stage::{Addresses, Stage};
use playground::{Front, PostgresOptions, PretendBank, PrivatePostgres, PrivateRedis, find};

use crate::cache;
use crate::drain::{Channel, drain, program, stage};
use crate::found::Found;

/// What a row tries.
#[derive(Debug, Clone, Copy)]
pub enum Case {
    /// nginx closes connections that were idle for a second.
    NginxKeepAlive,
    NginxLimitReq,
    NginxLimitConn,
    /// gunicorn closes connections that were idle for two seconds, its default.
    Gunicorn,
    /// `HAProxy` closes connections that were idle for a second.
    Haproxy,
    Ipv6,
}

pub async fn run(case: Case) -> anyhow::Result<Found> {
    match case {
        Case::NginxKeepAlive => nginx_keep_alive().await,
        Case::NginxLimitReq => nginx_refuses("limit_req zone=refunds;").await,
        Case::NginxLimitConn => nginx_refuses("limit_conn refunding 1;").await,
        Case::Gunicorn => gunicorn().await,
        Case::Haproxy => haproxy().await,
        Case::Ipv6 => ipv6().await,
    }
}

/// A program of the system, which `tools/install-servers judges` installs.
pub fn system(name: &str) -> anyhow::Result<PathBuf> {
    find::server(name)
        .map_or_else(|| cache::not_tried(format!("no {name}; run `tools/install-servers judges`")), Ok)
}

/// What a program says of its version, such as "nginx/1.22.1": the first word with a digit.
pub fn version(program: &Path, argument: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(argument).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let word = text.split_whitespace().find(|word| word.contains(|c: char| c.is_ascii_digit()));
    Ok(word.unwrap_or_default().trim_start_matches("nginx/").to_owned())
}

/// nginx with these lines in its `server`, before the bank.
async fn nginx(bank: SocketAddr, lines: &str) -> anyhow::Result<(Front, String)> {
    let program = system("nginx")?;
    let version = format!("nginx {}", version(&program, "-v")?);
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let front = Front::start(|folder, port| {
        let mut text = String::new();
        let at = folder.display();
        let _ = write!(
            text,
            "daemon off;\nworker_processes 1;\n{user}\npid {at}/nginx.pid;\nerror_log stderr;\n\
             events {{ worker_connections 2048; }}\nhttp {{\n  access_log off;\n  client_body_temp_path {at}/body;\n  \
             proxy_temp_path {at}/proxy;\n  fastcgi_temp_path {at}/f;\n  uwsgi_temp_path {at}/u;\n  scgi_temp_path {at}/s;\n  \
             limit_req_zone $binary_remote_addr zone=refunds:1m rate=20r/s;\n  limit_conn_zone $binary_remote_addr zone=refunding:1m;\n  \
             upstream bank {{ server {bank}; keepalive 64; }}\n  server {{\n    listen 127.0.0.1:{port};\n    {lines}\n    \
             location / {{ proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_pass http://bank; }}\n  }}\n}}\n"
        );
        std::fs::write(folder.join("nginx.conf"), text)?;
        let mut command = Command::new(&program);
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
        Ok(command)
    })
    .await?;
    Ok((front, version))
}

/// Many channels whose requests come about as far apart as the server keeps idle connections.
fn around(idle: Duration, refunds: u32) -> Vec<Channel> {
    let step = idle / 48;
    (0..24)
        .map(|nth| Channel {
            name: format!("c{nth}"),
            refunds,
            permits: 1,
            per: idle * 5 / 8 + step * nth,
            lateness: Duration::from_millis(200),
            keys: String::new(),
        })
        .collect()
}

/// How far apart the requests of one channel came, in words.
fn gaps(stage: &Stage) -> String {
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    let mut gaps = Vec::new();
    for arrival in stage.bank.ledger().all() {
        if let Some(before) = last.insert(arrival.channel.to_string(), arrival.at_us) {
            gaps.push(Duration::from_micros((arrival.at_us - before).unsigned_abs()).as_secs_f64());
        }
    }
    gaps.sort_by(f64::total_cmp);
    let at = |share: usize| gaps.get(gaps.len() * share / 100).copied().unwrap_or_default();
    format!("nine in ten of their gaps from {:.2} s to {:.2} s", at(5), at(95))
}

async fn idling(
    stage: Stage,
    front: Front,
    version: String,
    idle: Duration,
    refunds: u32,
) -> anyhow::Result<Found> {
    let base = format!("http://{}", front.address);
    let outcome = drain(&stage, &around(idle, refunds), &base, &stage.addresses()).await?;
    let outcome = format!("{outcome}; {}", gaps(&stage));
    drop(front);
    stage.strike().await?;
    Ok(Found { version, outcome })
}

async fn nginx_keep_alive() -> anyhow::Result<Found> {
    let stage = stage().await?;
    let (front, version) =
        nginx(stage.bank.address(), "keepalive_timeout 1s 1s; keepalive_requests 1000000;").await?;
    idling(stage, front, version, Duration::from_secs(1), 42).await
}

async fn nginx_refuses(lines: &str) -> anyhow::Result<Found> {
    let stage = stage().await?;
    let (front, version) = nginx(stage.bank.address(), lines).await?;
    // Above nginx's rate, so that it refuses. The bank needs time, so that requests are under way at once.
    stage.bank.then("acme", playground::bank::Step::pays().after(Duration::from_millis(60)));
    let channel = Channel {
        permits: 40,
        keys: "[[channel.acme.verdict]]\nstatus = 503\noutcome = \"asked_to_wait\"\n".to_owned(),
        ..Channel::usual()
    };
    let base = format!("http://{}", front.address);
    let outcome = drain(&stage, &[channel], &base, &stage.addresses()).await?;
    let refused = front.log().lines().filter(|line| line.contains("limiting ")).count();
    ensure!(refused > 0, "nginx refused nothing");
    drop(front);
    stage.strike().await?;
    Ok(Found { version, outcome: format!("{outcome}; nginx refused {refused} requests meanwhile") })
}

/// A WSGI program that passes each request on to the bank.
const APP: &str = r#"
import http.client, os

def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    headers = {"Content-Type": environ.get("CONTENT_TYPE", "")}
    for name, value in environ.items():
        if name.startswith("HTTP_") and name not in ("HTTP_HOST", "HTTP_CONNECTION"):
            headers[name[5:].replace("_", "-").title()] = value
    bank = http.client.HTTPConnection(os.environ["BANK"])
    bank.request(environ["REQUEST_METHOD"], environ["PATH_INFO"], body, headers)
    answer = bank.getresponse()
    text = answer.read()
    bank.close()
    start_response("%d %s" % (answer.status, answer.reason), [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]
"#;
const GUNICORN: &str = "27.0.1";

async fn gunicorn() -> anyhow::Result<Found> {
    let library = cache::python("gunicorn", GUNICORN)?;
    let stage = stage().await?;
    let bank = stage.bank.address().to_string();
    let front = Front::start(|folder, port| {
        std::fs::write(folder.join("bank.py"), APP)?;
        let mut command = Command::new("python3");
        command
            .args(["-m", "gunicorn", "--worker-class", "gthread", "--threads", "64", "--no-control-socket"])
            .args(["--bind", &format!("127.0.0.1:{port}"), "bank:app"])
            .env("PYTHONPATH", &library)
            .env("BANK", &bank)
            .current_dir(folder);
        Ok(command)
    })
    .await?;
    idling(stage, front, format!("gunicorn {GUNICORN}"), Duration::from_secs(2), 26).await
}

async fn haproxy() -> anyhow::Result<Found> {
    let program = system("haproxy")?;
    let version = format!("HAProxy {}", version(&program, "-v")?);
    let stage = stage().await?;
    let bank = stage.bank.address();
    let front = Front::start(|folder, port| {
        let text = format!(
            "global\n  maxconn 2000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  \
             timeout http-keep-alive 1s\nfrontend door\n  bind 127.0.0.1:{port}\n  default_backend bank\nbackend bank\n  server bank {bank}\n"
        );
        std::fs::write(folder.join("haproxy.cfg"), text)?;
        let mut command = Command::new(&program);
        command.arg("-db").arg("-f").arg(folder.join("haproxy.cfg"));
        Ok(command)
    })
    .await?;
    idling(stage, front, version, Duration::from_secs(1), 42).await
}

async fn ipv6() -> anyhow::Result<Found> {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return cache::not_tried("this machine has no IPv6");
    }
    let bank = PretendBank::start(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))?;
    let postgres = PrivatePostgres::start_with(&PostgresOptions::default()).await?;
    let stage = Stage::set_of(program(), bank, postgres, PrivateRedis::start().await?).await?;
    let at = Addresses { bank: stage.bank.address(), ..stage.addresses() };
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &at).await?;
    stage.strike().await?;
    Ok(Found { version: "a bank on `[::1]` alone".to_owned(), outcome })
}

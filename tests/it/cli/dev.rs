//! `refundd dev`: its bank misbehaves as people order, and it leaves nothing behind. And addresses that are taken.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

async fn put(address: &str, path: &str, body: &'static str) -> (u16, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<bytes::Bytes>>();
    let request = Request::put(format!("{address}{path}")).body(Full::from(body)).unwrap();
    let answer = client.request(request).await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn dev_shows_how_its_bank_misbehaves_and_ends_in_order_when_its_terminal_closes() {
    let mut dev = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["dev", "--listen", "127.0.0.1:0", "--bank", "127.0.0.1:0"])
        .env_remove("REFUNDD_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let mut page = Vec::new();
    while !page.last().is_some_and(|line: &String| line.contains("kill -HUP")) {
        page.push(lines.next().expect("dev says how to use it").unwrap());
    }
    let after = |label: &str| {
        let line = page.iter().find_map(|line| line.trim().strip_prefix(label));
        line.unwrap_or_else(|| panic!("{page:#?}")).trim().to_owned()
    };
    let (bank, config) = (after("Bank").replace("/ledger", ""), PathBuf::from(after("Config")));
    assert!(config.exists() && PathBuf::from(after("Log")).exists(), "{page:#?}");
    // `cargo run` puts no program on the path.
    let program = std::fs::canonicalize(env!("CARGO_BIN_EXE_refundd")).unwrap();
    let status = format!("{} status --config {}", program.display(), config.display());
    assert!(page.iter().any(|line| line.trim() == status), "{status}: {page:#?}");
    for words in ["500 hang cut", "-d 429"] {
        assert!(page.iter().any(|line| line.contains(words) && line.contains(&bank)), "{words}: {page:#?}");
    }
    let (status, said) = put(&bank, "/acme/next", "500 hang cut").await;
    assert_eq!((status, said.as_str()), (200, "the next sends of acme: 500, hang, cut\n"));
    let (status, said) = put(&bank, "/acme/then", "explode").await;
    assert!(status == 400 && said.contains("hang"), "{status} {said}");

    kill_process(Pid::from_child(&dev), Signal::HUP).unwrap();
    for line in lines {
        line.unwrap();
    }
    let ended = tokio::task::spawn_blocking(move || dev.wait().unwrap());
    let ended = tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap().unwrap();
    assert!(ended.success(), "{ended:?}");
    assert!(!config.exists(), "{}", config.display());
}

#[test]
fn dev_names_the_option_whose_address_is_taken_or_is_no_address() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let is_taken =
        |option: &str| format!("{option} {taken} is taken; choose another, such as {option} 127.0.0.1:0");
    for (option, other_option, address, words) in [
        ("--listen", "--bank", taken.as_str(), is_taken("--listen")),
        ("--bank", "--listen", taken.as_str(), is_taken("--bank")),
        ("--listen", "--bank", "foo", "such as 127.0.0.1:8080".to_owned()),
    ] {
        let dev = Command::new(env!("CARGO_BIN_EXE_refundd"))
            .args(["dev", other_option, "127.0.0.1:0", option, address])
            .env_remove("REFUNDD_CONFIG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!dev.status.success() && text(&dev).contains(&words), "{}", text(&dev));
    }
}

#[tokio::test]
async fn a_node_whose_address_is_taken_says_that_another_program_listens_there() {
    let scratch = Scratch::new().await;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = \"{}\"", other.local_addr().unwrap());
    let config = file(&scratch.file("a", UNLIMITED).replace("listen = \"127.0.0.1:0\"", &listen));
    let output = refundd(config.path(), &["run"]);
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("another program listens there, perhaps another node: choose another port"),
        "{said}"
    );
}

//! A node with every kind of secret that there is, and callers that put card numbers in at every door.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use playground::bank::Step;
use refundd::caller::token::Token;
use refundd::refund::State;
use rustix::process::Signal;
use serde_json::json;

use super::doors::{ask, commands, numbers, requests};
use super::{CANARY, CARD, Shown, TABLES, credentials};
use crate::cli::{file, text};
use crate::harness::certificates::Issued;
use crate::harness::{NodeProcess, Scratch, node::refund, until};

/// The secrets of one node, and its file.
struct Vault {
    folder: tempfile::TempDir,
    token: Token,
    channels: String,
    /// Texts that must come out nowhere.
    secrets: Vec<String>,
    _issued: Issued,
}

/// A folder with the secrets of `credentials`, and with the others that a file can name.
async fn vault(scratch: &Scratch) -> Vault {
    let (folder, issued, token) = (credentials(scratch).await, Issued::new(), Token::mint().unwrap());
    let write = |name: &str, secret: &str| {
        let path = folder.path().join(name);
        fs::write(&path, secret).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let stored = token.stored(jiff::Timestamp::MAX).to_string();
    let signing = write("signer", &format!("{CANARY} signs, with bytes enough"));
    let client_secret = write("client-secret", &format!("{CANARY} for tokens"));
    let tokens = write("shop.tokens", &stored);
    let client = issued.identity(&["node.internal"]);
    let key = fs::read_to_string(&client.key).unwrap();
    let secrets = [CANARY, &token.expose()["rfd_01234567_".len()..], stored.split(' ').nth(1).unwrap()];
    let secrets = secrets.into_iter().chain(key.lines().filter(|line| !line.starts_with('-')));
    let channels = format!(
        "[limit.acme]\npermits = 100\nper = \"1s\"\n\
         [channel.acme]\nlimits = [\"acme\"]\ncool_down = \"100ms\"\nbank_ref = \"/id\"\non_unknown = \"inquire\"\n\
         endpoint = \"http://{{bank}}/acme/refunds?key={CANARY}\"\n\
         inquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}?key={CANARY}\" }}\n\
         authorization_credential = \"acme\"\n\
         signing = {{ scheme = \"hmac-sha256\", key_files = [\"{signing}\"] }}\n\
         [channel.tokens]\nlimits = []\nendpoint = \"http://{{bank}}/tokens/refunds\"\n\
         token = {{ url = \"http://{{bank}}/token?key={CANARY}\", client_id = \"refundd\", client_secret_file = \"{client_secret}\" }}\n\
         [channel.mutual]\nlimits = []\nendpoint = \"https://127.0.0.1:1/mutual/refunds?key={CANARY}\"\nca_file = \"{}\"\n\
         client_certificate_file = \"{}\"\nclient_key_file = \"{}\"\n\
         [caller.shop]\ntokens_file = \"{tokens}\"\nchannels = [\"*\"]\nlimits = [\"*\"]\n\
         may = [\"enqueue\", \"look\", \"cancel\", \"acquire\", \"review\", \"metrics\"]\n",
        issued.ca().display(),
        client.certificate.display(),
        client.key.display(),
    );
    let secrets = secrets.map(str::to_owned).collect();
    Vault { folder, token, channels, secrets, _issued: issued }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_and_no_card_number_of_any_door_comes_out_of_a_node() {
    let scratch = Scratch::new().await;
    let vault = vault(&scratch).await;
    let credentials = vault.folder.path().to_str().unwrap().to_owned();
    let environment = [("CREDENTIALS_DIRECTORY", credentials.as_str())];
    scratch.bank.issues_tokens(
        "refundd",
        &format!("{CANARY}+for+tokens"),
        std::time::Duration::from_mins(5),
        CANARY,
    );
    scratch.bank.demands_tokens("tokens");
    scratch
        .bank
        .next("acme", [Step::pays_but_says_500(), Step::answers(422, r#"{"error":"4111111111111111"}"#)]);
    let config = scratch.file("a", &vault.channels).replace("level = \"info\"", "level = \"trace\"");
    let mut node = NodeProcess::spawn_file(&config, environment);
    node.wait_for_line("HTTP on");
    let address = node.address().unwrap();
    let mut shown = Shown(Vec::new());

    // It sends, fails, asks, and cannot reach a bank.
    let right = format!("Bearer {}", vault.token.expose());
    for (number, channel) in ["acme", "acme", "tokens", "mutual"].iter().enumerate() {
        let saved = ("POST", "/v1/refunds".to_owned(), refund(&format!("R-{number}"), channel).to_string());
        shown.add("a saved refund", ask(&address, &right, &saved).await);
    }
    until("two are settled, one is asked about, and one bank is unreachable", async || {
        let counts = scratch.counts().await;
        let count = |state| counts.get(&state).copied().unwrap_or(0);
        count(State::Failed) == 1 && count(State::Succeeded) >= 1 && count(State::Ready) == 1
    })
    .await;
    scratch.sql("update refundd.refunds set inquire_at = now() where state = 'unknown'").await;
    until("the bank was asked", async || scratch.count(State::Unknown).await == 0).await;

    // Card numbers at every door, and tokens that are nearly right.
    let wrong = right.replace("Bearer", "Basic");
    for number in numbers() {
        for request in requests(&number) {
            let answer = ask(&address, &right, &request).await;
            assert!(!answer.starts_with("HTTP/1.1 201"), "{request:?}: {answer}");
            shown.add(format!("{} {}", request.0, request.1), answer);
        }
        let stranger = ("GET", "/v1/refunds".to_owned(), String::new());
        shown.add("a wrong scheme", ask(&address, &wrong, &stranger).await);
        shown.add("a card number as a token", ask(&address, &format!("Bearer {CARD}"), &stranger).await);
    }
    until("the journal is sealed", async || scratch.number("select count(*) from refundd.seals").await > 0)
        .await;
    for path in [
        "/v1/refunds",
        "/v1/refunds/1",
        "/v1/refunds/1/attempts",
        "/v1/channels",
        "/v1/events",
        "/metrics",
        "/health/ready",
    ] {
        shown.add(path, ask(&address, &right, &("GET", path.to_owned(), String::new())).await);
    }
    let login = format!("Basic {}", STANDARD.encode(format!("shop:{}", vault.token.expose())));
    for path in [
        "/",
        "/channels/acme",
        "/refunds/1",
        "/refunds/2",
        "/review",
        "/events",
        "/nodes",
        "/proof?channel=acme",
    ] {
        let page = ask(&address, &login, &("GET", path.to_owned(), String::new())).await;
        assert!(page.starts_with("HTTP/1.1 200"), "{path}: {page}");
        shown.add(path, page);
    }

    // A good file, bad files, and bad secrets.
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again");
    let refusals =
        |node: &NodeProcess| node.log().iter().filter(|line| line.contains("was not taken over")).count();
    let bad_files = [
        config.replace("endpoint = \"http://", &format!("endpoint = \"http://user:{CANARY}@")),
        config.replace("?key=", "?\u{1}key="),
        config
            .replace("authorization_credential = \"acme\"", &format!("authorization = \"Bearer {CANARY}\"")),
    ];
    for (number, bad) in bad_files.iter().enumerate() {
        node.rewrite(bad);
        node.signal(Signal::HUP);
        until("the bad file is refused", async || refusals(&node) == number + 1).await;
        let path = file(bad);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_refundd"))
            .arg("--config")
            .arg(path.path())
            .arg("check")
            .envs(environment)
            .output()
            .unwrap();
        assert!(!output.status.success());
        shown.add(format!("check of bad file {number}"), text(&output));
    }
    node.rewrite(&config);
    let shop = vault.folder.path().join("shop.tokens");
    fs::write(&shop, vault.token.expose()).unwrap();
    node.signal(Signal::HUP);
    until("a token in the place of its hash is refused", async || refusals(&node) == bad_files.len() + 1)
        .await;
    fs::write(&shop, vault.token.stored(jiff::Timestamp::MAX).to_string()).unwrap();

    // Commands. Those that put a number in need the addresses of the servers only.
    let plain =
        file(&scratch.file("a", "[channel.acme]\nlimits = []\nendpoint = \"http://{bank}/acme/refunds\"\n"));
    for number in numbers() {
        for (place, said) in commands(plain.path(), &number) {
            shown.add(place, said);
        }
    }
    let path = file(&config);
    for arguments in [
        &["check"][..],
        &["status"],
        &["status", "--json"],
        &["review"],
        &["review", "show", "1"],
        &["prove"],
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_refundd"))
            .arg("--config")
            .arg(path.path())
            .args(arguments)
            .envs(environment)
            .output()
            .unwrap();
        shown.add(arguments.join(" "), text(&output));
    }

    // The processes, the tables, and the log.
    let own = node.pid().as_raw_nonzero();
    for name in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{own}/{name}")).unwrap_or_default();
        shown.add(name, String::from_utf8_lossy(&bytes));
    }
    let tables = TABLES.iter().filter(|table| !["proposals", "suspensions"].contains(table));
    shown.add_tables(&scratch, &tables.copied().collect::<Vec<_>>()).await;
    shown.add("the log", node.log().join("\n"));
    node.signal(Signal::TERM);
    assert!(node.wait().success());

    for secret in &vault.secrets {
        shown.never(secret);
    }
    for number in numbers() {
        shown.never(&number);
        shown.never(&json!(number).to_string().replace('"', ""));
    }
    assert!(shown.0.iter().any(|(place, text)| place == "the log" && text.len() > 10_000));
}

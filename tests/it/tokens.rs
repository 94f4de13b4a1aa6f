//! Access tokens: the pretend bank has a token server and lets in only requests with a good token.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use playground::bank::Step;
use playground::{Authority, PretendBank};
use refundd::config::Config;
use refundd::refund::State;
use rustix::process::Signal;

use crate::harness::{NodeProcess, Scratch, TestNode, until};

const SECRET: &str = "canary-4f1d & more";
const PREFIX: &str = "canary-77c2";
/// Permits whose request was made. On a busy machine one may lapse, which its claim says.
const PERMITS: &str = "select (select count(*) from refundd.permits) - (select count(*) from refundd.attempts where code = 'permit_lapsed')";
const ATTEMPTS: &str = "select count(*) from refundd.attempts where code is distinct from 'permit_lapsed'";

/// A folder with the client's secret, and the channel whose bank demands tokens that live for `life`.
pub async fn desk(life: Duration) -> (Scratch, tempfile::TempDir) {
    let (scratch, folder) = (Scratch::new().await, tempfile::tempdir().unwrap());
    write(&folder, SECRET);
    scratch.bank.issues_tokens("refundd@acme", "canary-4f1d+%26+more", life, PREFIX);
    scratch.bank.demands_tokens("acme");
    (scratch, folder)
}

fn write(folder: &tempfile::TempDir, secret: &str) {
    let path = folder.path().join("secret");
    fs::write(&path, secret).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

pub fn acme(folder: &tempfile::TempDir, permits: u32) -> String {
    format!(
        "[limit.acme]\npermits = {permits}\nper = \"1s\"\n\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\n\
         inquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}\" }}\n\
         token = {{ url = \"http://{{bank}}/token?key=canary-4f1d\", client_id = \"refundd@acme\", \
         client_secret_file = \"{}\", scope = \"refunds\" }}\n",
        folder.path().join("secret").display()
    )
}

async fn is_paid(scratch: &Scratch, count: i64) {
    until("all are paid", async || scratch.count(State::Succeeded).await == count).await;
}

async fn is_paused(scratch: &Scratch) -> bool {
    scratch.suspensions().await == 1
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_and_no_request_goes_without_a_good_one() {
    let (scratch, folder) = desk(Duration::from_secs(4)).await;
    scratch.bank.next("acme", [Step::pending().decided_after(Duration::ZERO)]);
    let began = std::time::Instant::now();
    let node = TestNode::start(&scratch, "a", &acme(&folder, 20)).await;
    scratch.insert("acme", "R-", 120).await;
    until("all are sent", async || {
        scratch.count(State::Succeeded).await + scratch.count(State::Accepted).await == 120
    })
    .await;
    scratch.sql("update refundd.refunds set inquire_at = now() where state = 'accepted'").await;
    is_paid(&scratch, 120).await;
    let requests = scratch.bank.token_requests();
    // A token of 4 s is renewed after 3 s.
    let took = began.elapsed();
    let most = 2 + usize::try_from(took.as_secs() / 3).unwrap();
    assert!((2..=most).contains(&requests), "{requests} requests for tokens in {took:?}");
    assert_eq!(scratch.number("select count(*) from refundd.attempts where code = 'token_refused'").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn the_workers_for_sends_and_inquiries_share_a_token() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    scratch.bank.next("acme", [Step::pending().decided_after(Duration::ZERO)]);
    let node = TestNode::start(&scratch, "a", &acme(&folder, 1000)).await;
    scratch.insert("acme", "R-", 1).await;
    until("the bank accepts one", async || scratch.count(State::Accepted).await == 1).await;
    node.stop().await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    scratch.insert("acme", "S-", 20).await;
    let node = TestNode::start(&scratch, "b", &acme(&folder, 1000)).await;
    is_paid(&scratch, 21).await;
    assert_eq!(scratch.bank.token_requests(), 2);
    node.stop().await;
}

#[tokio::test]
async fn a_token_server_that_is_down_spends_no_permit_and_fails_no_refund() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    scratch.bank.next_tokens(vec![Step::answers(503, ""); 2]);
    scratch.bank.next_tokens(vec![Step::resets(); 2]);
    let node = TestNode::start(&scratch, "a", &acme(&folder, 1000)).await;
    scratch.insert("acme", "R-", 3).await;
    until("the channel says why it sends nothing", async || {
        node.get("/v1/channels").await.text.contains("get a token from")
    })
    .await;
    is_paid(&scratch, 3).await;
    assert_eq!(scratch.bank.token_requests(), 5);
    assert_eq!(scratch.number("select sum(attempts)::bigint from refundd.refunds").await, 3);
    assert_eq!((scratch.number(PERMITS).await, scratch.number(ATTEMPTS).await), (3, 3));
    node.stop().await;
}

/// A request for a token has the client's secret, so the rules of the bank's address hold for the token server, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_server_at_an_address_that_is_not_named_or_of_another_authority_gets_no_secret() {
    let (stranger, here) = (Authority::new().unwrap(), SocketAddr::from(([127, 0, 0, 1], 0)));
    for (is_secure, why) in [
        (false, "its address 127.0.0.1 is this host; name its range in `addresses`"),
        (true, "invalid peer certificate"),
    ] {
        let (scratch, folder) = (Scratch::over(is_secure).await, tempfile::tempdir().unwrap());
        write(&folder, SECRET);
        let (other, server) = if is_secure {
            let other = PretendBank::start_secure(here, stranger.identity().unwrap()).unwrap();
            let server = format!("https://{}", other.address());
            (other, server)
        } else {
            // `127.1` is a name for Rust and an address for DNS.
            let other = PretendBank::start_here().unwrap();
            let server = format!("http://127.1:{}", other.address().port());
            (other, server)
        };
        for bank in [&scratch.bank, &other] {
            bank.issues_tokens("refundd@acme", "canary-4f1d+%26+more", Duration::from_mins(5), PREFIX);
        }
        scratch.bank.demands_tokens("acme");
        let good = acme(&folder, 1000).replace("limits = [\"", "plain_http = \"accepted\"\nlimits = [\"");
        let node =
            TestNode::start(&scratch, "a", &good.replace("http://{bank}/token", &format!("{server}/token")))
                .await;
        scratch.insert("acme", "R-", 3).await;
        until(why, async || node.get("/v1/channels").await.text.contains(why)).await;
        assert_eq!((scratch.bank.token_requests(), other.token_requests()), (0, 0));
        assert_eq!(scratch.number(PERMITS).await, 0);
        node.daemon.reload(scratch.config("a", &good)).await.unwrap();
        is_paid(&scratch, 3).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_wrong_client_secret_is_tried_once_and_a_reload_brings_the_right_one() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    write(&folder, "guess");
    let config = || Config::parse(&scratch.file("a", &acme(&folder, 1000)), "test.toml", &|_| None).unwrap();
    let node = TestNode::run(config()).await;
    scratch.insert("acme", "R-", 3).await;
    let mut page = String::new();
    until("the channel names the server's reason", async || {
        page = node.get("/v1/channels").await.text;
        page.contains("HTTP 401, error \\\"invalid_client\\\"")
    })
    .await;
    assert!(!page.contains("canary"), "{page}");
    assert_eq!(scratch.number(PERMITS).await, 0);
    assert_eq!(scratch.count(State::Ready).await, 3);
    assert_eq!(scratch.bank.token_requests(), 1, "many wrong secrets may lock the client out");
    assert!(scratch.bank.ledger().all().is_empty() && !is_paused(&scratch).await);
    write(&folder, SECRET);
    node.daemon.reload(config()).await.unwrap();
    is_paid(&scratch, 3).await;
    node.stop().await;
}

#[tokio::test]
async fn a_token_that_the_bank_ends_early_is_replaced_and_the_refund_goes_under_another_permit() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    let node = TestNode::start(&scratch, "a", &acme(&folder, 100)).await;
    scratch.insert("acme", "R-", 3).await;
    is_paid(&scratch, 3).await;
    scratch.bank.revokes_tokens();
    scratch.insert("acme", "S-", 3).await;
    is_paid(&scratch, 6).await;
    let refused = scratch
        .number(
            "select count(*) from refundd.attempts where code = 'token_refused' and outcome = 'not_executed'",
        )
        .await;
    assert!((1..=3).contains(&refused), "{refused}");
    let (permits, arrivals) = (scratch.number(PERMITS).await, scratch.bank.ledger().all().len());
    assert_eq!(
        (permits, i64::try_from(arrivals).unwrap()),
        (6 + refused, 6 + refused),
        "one permit for each request"
    );
    assert_eq!(
        scratch.number("select max(attempts)::bigint from refundd.refunds").await,
        1,
        "a 401 counts no attempt"
    );
    assert_eq!(scratch.bank.token_requests(), 2);
    assert!(!is_paused(&scratch).await);
    // The bank ends the next token as well: that is no accident any more.
    scratch.bank.revokes_tokens();
    scratch.insert("acme", "T-", 1).await;
    until("the channel is paused", async || is_paused(&scratch).await).await;
    until("the refund is ready again", async || scratch.count(State::Ready).await == 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_new_token_that_the_bank_refuses_pauses_the_channel() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    scratch.bank.then("acme", Step::unauthorised());
    let node = TestNode::start(&scratch, "a", &acme(&folder, 1000)).await;
    scratch.insert("acme", "R-", 1).await;
    until("the channel is paused", async || is_paused(&scratch).await).await;
    let suspensions = scratch.text("select string_agg(s::text, ' ') from refundd.suspensions s").await;
    assert!(suspensions.contains("another node's token may have ended it"), "{suspensions}");
    until("the refund is ready again", async || scratch.count(State::Ready).await == 1).await;
    assert_eq!(scratch.bank.ledger().all().len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn no_token_and_no_client_secret_comes_out_of_a_node() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    scratch.bank.next_tokens([Step::answers(400, r#"{"error":"bad secret canary-4f1d & more"}"#)]);
    let channels = acme(&folder, 1000);
    let mut node = NodeProcess::spawn(&scratch, "a", &channels, None);
    node.wait_for_line("HTTP on");
    let trace = scratch.file("a", &channels).replace("level = \"info\"", "level = \"trace\"");
    node.rewrite(&trace);
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again");
    scratch.insert("acme", "R-", 1).await;
    node.wait_for_line("get a token from");
    // The file is the same, and the server has no more complaints; a changed channel asks at once.
    node.rewrite(&trace.replace("permits = 1000", "permits = 999"));
    node.signal(Signal::HUP);
    is_paid(&scratch, 1).await;
    // The bank refuses the token that it took before, and then the one in its place.
    let count = scratch.bank.token_requests();
    let refuses = |n: usize| Step::refuses_entry(&format!("bad token {PREFIX}-{n} of Bearer {PREFIX}-{n}"));
    scratch.bank.next("acme", [refuses(count), refuses(count + 1)]);
    scratch.insert("acme", "S-", 1).await;
    until("the channel is paused", async || is_paused(&scratch).await).await;
    let mut shown = node.log();
    for table in ["attempts", "channels", "events", "nodes", "refunds", "suspensions"] {
        let all = format!("select coalesce(string_agg(t::text, ' '), '') from refundd.{table} t");
        shown.push(scratch.text(&all).await);
    }
    let config = Config::parse(&trace, "test.toml", &|_| None).unwrap();
    let channel = config.channels.values().next().unwrap();
    shown.push(format!("{config:?} {:?} {:?}", channel.token, refundd::bank::Bank::new(channel).unwrap()));
    for line in &shown {
        assert!(!line.contains("canary"), "{line}");
    }
    assert!(shown.iter().any(|line| line.contains("error \\\"bad secret ****\\\"")), "the reason is shown");
    assert!(shown.iter().any(|line| line.contains("bad token **** of Bearer ****")), "so is the bank's");
}

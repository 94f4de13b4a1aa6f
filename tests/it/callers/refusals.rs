//! Refused requests are counted by their reason, and logged seldom.

use jiff::{SignedDuration, Timestamp};
use refundd::caller::token::Token;

use super::{CallerTables, TWO_CHANNELS, get_at, in_an_hour};
use crate::harness::{NodeProcess, Scratch};

#[tokio::test]
async fn refused_callers_are_counted_by_reason_and_logged_once_a_minute_without_tokens() {
    let (scratch, mut callers) = (Scratch::new().await, CallerTables::new());
    let shop = callers.caller("shop", "may = [\"enqueue\"]\nchannels = [\"acme\"]");
    let expired = Token::mint().unwrap();
    let an_hour_ago = Timestamp::now() - SignedDuration::from_hours(1);
    callers.tokens("shop", &[(&shop, in_an_hour()), (&expired, an_hour_ago)]);
    let both =
        callers.caller("both", "may = [\"look\"]\nchannels = [\"acme\"]\ncertificate = \"both.internal\"");
    let fast = callers.caller("fast", "may = [\"look\"]\nchannels = [\"acme\"]\nrequests = 1\nper = \"1h\"");
    let metrics = callers.caller("prometheus", "may = [\"metrics\"]");
    let stranger = Token::mint().unwrap();
    let mut node = NodeProcess::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS));
    let address = node.address().unwrap();
    let mut answers = String::new();
    for (token, status) in [
        (None, 401),
        (None, 401),
        (Some(&stranger), 401),
        (Some(&expired), 401),
        (Some(&both), 401),
        (Some(&shop), 403),
        (Some(&fast), 200),
        (Some(&fast), 429),
    ] {
        let (answered, answer) = get_at(&address, token, "/v1/refunds").await;
        assert_eq!(answered, status, "{answer}");
        answers.push_str(&answer);
    }
    let (_, page) = get_at(&address, Some(&metrics), "/metrics").await;
    let mut counted: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("refundd_http_refused_callers_total")).collect();
    counted.sort_unstable();
    let wanted = [
        "{reason=\"expired_token\"} 1",
        "{reason=\"missing_scope\"} 1",
        "{reason=\"no_certificate\"} 1",
        "{reason=\"no_token\"} 2",
        "{reason=\"too_fast\"} 1",
        "{reason=\"wrong_token\"} 1",
    ];
    assert_eq!(counted, wanted);
    node.signal(rustix::process::Signal::TERM);
    assert!(node.wait().success());
    let log = node.log();
    let logged: Vec<&String> = log.iter().filter(|line| line.contains("HTTP requests since")).collect();
    assert!(matches!(logged[..], [one] if one.contains("Refused 1 HTTP requests")), "{logged:#?}");
    let shown = log.join("\n") + &answers + &page;
    for token in [&shop, &expired, &both, &fast, &metrics, &stranger] {
        let (_, secret) = token.expose().rsplit_once('_').unwrap();
        assert!(!shown.contains(secret), "a token stands in the log, in an answer or on the page");
    }
}

//! The bank and the limits of channels that tests publish and claim without any node, and such claims.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use refundd::channel::BankAddress;
use refundd::limiter::{Counted, Permit, PermitNumber, Span};
use refundd::refund::{ChannelName, LimitName, RefundId};
use refundd::store::ClaimRequest;

use super::Scratch;

/// Where that bank is.
pub static ANYWHERE: LazyLock<BankAddress> =
    LazyLock::new(|| BankAddress { endpoint: "http://127.0.0.1:9/".to_owned(), inquiry: String::new() });

/// The channel of most tests.
pub fn acme() -> ChannelName {
    ChannelName::new("acme").unwrap()
}

/// Gives a channel that [`Scratch::publish`] published this bank, so that it can be claimed.
pub async fn add_address(scratch: &Scratch, channel: &str) {
    scratch
        .sql(&format!(
            "with here as (
                 insert into refundd.addresses (channel, endpoint, inquiry, published_by)
                 values ('{channel}', '{}', '', 'test') returning address
             )
             update refundd.channels c set address = here.address from here where c.channel = '{channel}'",
            ANYWHERE.endpoint
        ))
        .await;
}

/// The rule of the limits here.
pub const RULE: &str = r#"{"algorithm":"fixed_window","permits":1000,"per_us":1000000,"lateness_us":20000}"#;

/// Saves a limit under [`RULE`].
pub async fn add_limit(scratch: &Scratch, limit: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.limits (limit_name, rule, adopted_by) values ('{limit}', '{RULE}', 'test')"
        ))
        .await;
}

/// This second, by Postgres's clock, in microseconds.
pub async fn window(scratch: &Scratch) -> i64 {
    scratch.number("select (extract(epoch from date_trunc('second', now())) * 1000000)::bigint").await
}

static ACME: LazyLock<ChannelName> = LazyLock::new(|| ChannelName::new("acme").unwrap());

/// The claim of this node on refunds of the channel `acme`, which sends nothing again.
pub fn claim_of<'a>(node: &'a str, taken: &'a [(RefundId, Permit)]) -> ClaimRequest<'a> {
    ClaimRequest {
        channel: &ACME,
        node,
        holder: node,
        lease: Duration::from_secs(30),
        clock_tolerance: Duration::from_secs(5),
        taken,
        resend_within: None,
        most_sends: 12,
        bank_address: &ANYWHERE,
    }
}

/// A refund, and a permit for a channel without limits.
pub fn unlimited(id: i64) -> (RefundId, Permit) {
    (RefundId(id), Permit { numbers: Vec::new(), span: None })
}

/// A refund, and a numbered permit of the limit `acme` under [`RULE`].
pub fn numbered(id: i64, window_start_us: i64, ordinal: i32) -> (RefundId, Permit) {
    let number = PermitNumber {
        limit: LimitName::new("acme").unwrap(),
        window_start_us,
        ordinal,
        generation: 1,
        own_rule: RULE.into(),
        stricter_rule: None,
        counted: Counted::default(),
    };
    let (opens_us, closes_us) = (window_start_us, window_start_us + 980_000);
    let span =
        Span { opens_us, closes_us, opens: Instant::now(), closes: Instant::now() + Duration::from_secs(1) };
    (RefundId(id), Permit { numbers: vec![number], span: Some(span) })
}

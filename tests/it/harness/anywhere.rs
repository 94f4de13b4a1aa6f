//! The bank of channels that tests publish and claim without any node, and such claims.

use std::sync::LazyLock;
use std::time::Duration;

use refundd::channel::BankAddress;
use refundd::limiter::Permit;
use refundd::refund::{ChannelName, RefundId};
use refundd::store::ClaimRequest;

use super::Scratch;

/// Where that bank is.
pub static ANYWHERE: LazyLock<BankAddress> =
    LazyLock::new(|| BankAddress { endpoint: "http://127.0.0.1:9/".to_owned(), inquiry: String::new() });

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

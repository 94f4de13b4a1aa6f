//! The bank of channels that tests publish and claim without any node.

use std::sync::LazyLock;

use refundd::channel::BankAddress;

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

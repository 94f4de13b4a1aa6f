//! What commands and answers say names the field, the value and the way out.

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

#[tokio::test]
async fn the_log_quotes_reasons_and_writes_all_times_alike() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let pause = ["pause", "acme", "--for", "2h", "--reason", "the bank: books nothing"];
    assert!(refundd(config.path(), &pause).status.success());
    for args in [&["log"][..], &["log", "--json"]] {
        let said = text(&refundd(config.path(), args));
        assert!(!said.contains("+00:00") && said.contains("until"), "{said}");
        assert!(said.contains("\"the bank: books nothing\""), "{said}");
    }
}

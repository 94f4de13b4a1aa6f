//! docs/to-the-bank.md shows a bank the request that refundd sends.

use std::path::Path;

use jiff::Timestamp;
use refundd::refund::{BankBody, Money, RefundId};

use super::{ROOT, fenced};

#[test]
fn the_bank_is_shown_the_body_that_refundd_sends() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/to-the-bank.md")).unwrap();
    let shown: Vec<&str> = fenced(&page, &["json"]).into_iter().map(|(_, line)| line).collect();
    let money = Money { amount_minor: 1250, currency: "EUR".to_owned() };
    let requested_at: Timestamp = "2026-11-21T08:00:01.123456Z".parse().unwrap();
    let body = BankBody {
        refund_id: RefundId(4711),
        refund_ref: "order-8812-refund-1",
        channel: "acme",
        payment_ref: "P-77120",
        money: &money,
        payload: None,
        requested_at,
    };
    assert_eq!(shown, [serde_json::to_string(&body).unwrap()]);
}

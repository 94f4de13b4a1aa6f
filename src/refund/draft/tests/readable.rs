//! A refused refund that may be saved already.

use serde_json::json;

use super::{check, good, with};
use crate::refund::draft::*;

#[test]
fn a_refund_that_rules_alone_refuse_can_be_read_and_no_other() {
    let bounds = AmountBounds(std::sync::Arc::new([("EUR".to_owned(), 1249)].into()));
    let rules = |_: &ChannelName| DraftRules { amount_bounds: bounds.clone(), ..DraftRules::default() };
    let read = |draft: &Value| Draft::read(draft, &rules).unwrap_err().readable;
    assert_eq!(read(&good()), check(&good()).ok().map(Box::new));
    for (field, value) in [
        ("refund_ref", json!("R-1 ")),
        ("payment_ref", json!("P\u{202e}1")),
        ("payment_ref", json!("4111 1111 1111 1111")),
        ("payload", json!(["4111 1111 1111 1111"])),
    ] {
        let refund = *read(&with(field, value.clone())).unwrap();
        let kept: Value = match field {
            "refund_ref" => refund.refund_ref.into(),
            "payment_ref" => refund.payment_ref.into(),
            _ => serde_json::from_str(refund.payload.unwrap().as_str()).unwrap(),
        };
        assert_eq!(kept, value);
    }
    for (field, value) in [
        ("refund_ref", json!("R\0")),
        ("refund_ref", json!("R".repeat(201))),
        ("payment_ref", json!(7)),
        ("payload", json!("\0")),
        ("currency", json!("eur")),
        ("due_at", json!("soon")),
        ("amount", json!(1)),
    ] {
        assert_eq!(read(&with(field, value)), None, "{field}");
    }
}

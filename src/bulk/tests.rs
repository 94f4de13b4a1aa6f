//! Checks what people read about a refund that stays.

use super::*;
use crate::refund::Money;

#[test]
fn an_amount_that_the_other_channel_does_not_take_is_told_in_the_main_unit() {
    let order = Move {
        from: "acme".to_owned(),
        to: "globex".to_owned(),
        who: "ann".to_owned(),
        why: "acme is down".to_owned(),
    };
    let bulk = Bulk {
        // Nothing is asked of it, so no connection is opened.
        store: Store::open("postgres://nobody@127.0.0.1:9/none", None, 1).unwrap(),
        action: BulkAction::Move(order),
        look: BulkLook { moves: None, channels: Names::All },
        is_dry: false,
        room: None,
    };
    for (amount_minor, currency, told) in
        [(250_000, "EUR", "2,500.00 EUR"), (250_000, "JPY", "250,000 JPY"), (250_000, "BHD", "250.000 BHD")]
    {
        let stays = Stays::AmountTooHigh;
        let refund = Waiting {
            id: RefundId(7),
            refund_ref: "R-7".to_owned(),
            channel: "acme".to_owned(),
            state: State::Ready,
            version: 1,
            money: Money { amount_minor, currency: currency.to_owned() },
            stays: Some(stays),
        };
        let result = BulkResult {
            refund_ref: "R-7".to_owned(),
            refund: Some(refund),
            outcome: BulkOutcome::Stays(stays),
        };
        let why = format!(
            "channel `globex` does not take {told}: its max_amount_minor is lower, or does not name the currency"
        );
        assert_eq!(bulk.why(&result), Some(why));
    }
}

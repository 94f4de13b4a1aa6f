//! What the bank's own answer says about its refund, by the contract with banks.
//!
//! The bank enters it when it decides how to answer, so it is independent of what the caller made of the answer. Rare
//! answers of the contract, such as a 200 without a body, count as nothing here.

use serde_json::{Map, Value};

use super::script::{Ending, Step};

/// What one answer says about its refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankSays {
    /// Nothing that counts: silence, an answer that is cut, trouble, a proxy's page, or a text that nobody knows.
    Nothing,
    Executed,
    /// The bank has the refund and reports later.
    Pending,
    /// The bank will never execute it.
    Rejected,
    /// The bank's own "not found", to an inquiry. The 404 of a proxy is [`BankSays::Nothing`].
    NotFound,
    /// An amount that nobody sent.
    AnotherAmount,
}

impl BankSays {
    /// What an answer to a send says. The caller sent `sent_minor`.
    pub(super) fn to_send(step: &Step, sent_minor: i64) -> BankSays {
        let Some(body) = object(step) else { return BankSays::Nothing };
        let status = step.status.as_u16();
        // These are about the channel, whatever their bodies repeat.
        if matches!(status, 401 | 403 | 407 | 425 | 429 | 503) {
            return BankSays::Nothing;
        }
        if is_about_another(&body, Some(sent_minor)) {
            return BankSays::AnotherAmount;
        }
        match (status, text(&body)) {
            (200..=299, None) if may_name_an_error(&body) => BankSays::Nothing,
            (200..=299, Some("rejected")) | (400 | 404 | 410 | 413 | 415 | 422, _) => BankSays::Rejected,
            (202, None | Some("succeeded")) | (200..=299, Some("pending")) => BankSays::Pending,
            (200..=299, None | Some("succeeded")) => BankSays::Executed,
            _ => BankSays::Nothing,
        }
    }

    /// What an answer to an inquiry says. `sent_minor` is the amount in the sends under its key.
    pub(super) fn to_inquiry(step: &Step, sent_minor: Option<i64>) -> BankSays {
        let Some(body) = object(step) else { return BankSays::Nothing };
        let says = match (step.status.as_u16(), text(&body)) {
            (200, Some("succeeded")) => BankSays::Executed,
            (200, Some("pending")) => BankSays::Pending,
            (200, Some("rejected")) => BankSays::Rejected,
            (404, _) if body.get("error").is_some_and(|error| error == "not found") => BankSays::NotFound,
            _ => BankSays::Nothing,
        };
        if says != BankSays::Nothing && is_about_another(&body, sent_minor) {
            BankSays::AnotherAmount
        } else {
            says
        }
    }
}

/// The body of an answer that leaves the bank whole; `None` if it is no JSON object.
fn object(step: &Step) -> Option<Map<String, Value>> {
    if step.ending != Ending::Whole {
        return None;
    }
    serde_json::from_slice(&step.body).ok()
}

/// The status text; empty for a status that is no text.
fn text(body: &Map<String, Value>) -> Option<&str> {
    body.get("status").map(|status| status.as_str().unwrap_or_default())
}

/// Whether it has a field in which banks and gateways name an error. One that is empty is rare, and counts as well.
fn may_name_an_error(body: &Map<String, Value>) -> bool {
    body.keys().any(|name| name.to_lowercase().starts_with("error") || name.eq_ignore_ascii_case("fault"))
}

fn is_about_another(body: &Map<String, Value>, sent_minor: Option<i64>) -> bool {
    body.get("amount_minor").is_some_and(|amount| amount.as_i64() != sent_minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_send_says_what_the_contract_with_banks_says() {
        for (step, says) in [
            (Step::pays(), BankSays::Executed),
            (Step::pending(), BankSays::Pending),
            (Step::rejects(), BankSays::Rejected),
            (Step::answers(200, r#"{"status":"succeeded","amount_minor":7}"#), BankSays::Executed),
            (Step::answers(200, r#"{"status":"succeeded","amount_minor":8}"#), BankSays::AnotherAmount),
            (Step::answers(200, r#"{"status":"perhaps"}"#), BankSays::Nothing),
            (Step::answers(200, r#"{"error":{"code":"51"}}"#), BankSays::Nothing),
            (Step::answers(202, r#"{"errorMessage":"Task timed out"}"#), BankSays::Nothing),
            (Step::pays_but_says_500(), BankSays::Nothing),
            (Step::too_many(1), BankSays::Nothing),
            (Step::pays().cut_after(10), BankSays::Nothing),
            (Step::silence(), BankSays::Nothing),
            (Step::answers(422, "<html>no</html>"), BankSays::Nothing),
        ] {
            assert_eq!(BankSays::to_send(&step, 7), says, "{step:?}");
        }
    }

    #[test]
    fn an_inquiry_gets_proof_from_the_bank_alone_and_none_from_a_proxy() {
        for (step, says) in [
            (Step::answers(200, r#"{"status":"succeeded","amount_minor":7}"#), BankSays::Executed),
            (Step::answers(200, r#"{"status":"succeeded","amount_minor":8}"#), BankSays::AnotherAmount),
            (Step::answers(200, r#"{"status":"pending"}"#), BankSays::Pending),
            (Step::answers(200, r#"{"status":"rejected"}"#), BankSays::Rejected),
            (Step::answers(500, r#"{"status":"rejected"}"#), BankSays::Nothing),
            (Step::answers(404, r#"{"error":"not found"}"#), BankSays::NotFound),
            (Step::answers(404, r#"{"error":"not found"}"#).cut_after(100), BankSays::Nothing),
            (Step::proxy_404(), BankSays::Nothing),
            (Step::gateway_404(), BankSays::Nothing),
        ] {
            assert_eq!(BankSays::to_inquiry(&step, Some(7)), says, "{step:?}");
        }
    }
}

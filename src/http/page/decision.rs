//! What a person may decide about a refund, and the fields of the form for it.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::super::{Api, Problem, Who};
use super::form::{by_field, reason_field};
use super::parts::state;
use crate::refund::{AmountBounds, Money, Refund, State as RefundState};
use crate::store::NeededFor;

/// What a person may decide about a refund in this state.
pub(super) fn choices(state: RefundState) -> Vec<RefundState> {
    let is_for_a_person =
        !matches!(state, RefundState::Ready | RefundState::Sending | RefundState::Succeeded);
    let is_decided = |next: &RefundState| {
        state.may_move_to(*next)
            && match next {
                // Recovery brings an unknown refund to a person first.
                RefundState::Ready => state != RefundState::Unknown,
                // To look at it again.
                RefundState::Review => state.is_end(),
                _ => next.is_end(),
            }
    };
    let (again, others): (Vec<_>, Vec<_>) = RefundState::ALL
        .into_iter()
        .filter(|next| is_for_a_person && is_decided(next))
        .partition(|next| *next == RefundState::Ready);
    // What moves money once more stands last.
    [others, again].concat()
}

/// When one person's decision needs a second person.
#[derive(Debug)]
pub(super) struct TwoPeople(Vec<BTreeMap<String, i64>>);

impl TwoPeople {
    /// Reads the rules about amounts; the other rule holds always.
    pub(super) async fn read(api: &Api) -> Result<TwoPeople, Problem> {
        let rules = api.node.store.other_second_person(&AmountBounds::default()).await?;
        Ok(TwoPeople(rules.iter().filter_map(|rule| serde_json::from_str(&rule.above).ok()).collect()))
    }

    /// What holds for the decisions about this refund.
    pub(super) fn of(&self, refund: &Refund) -> Vec<String> {
        let bound = |rule: &BTreeMap<String, i64>| rule.get(&refund.money.currency).copied().unwrap_or(-1);
        if self.0.iter().any(|rule| refund.money.amount_minor > bound(rule)) {
            return vec![format!(
                "A second person must approve every decision about this refund: {}.",
                NeededFor::Amount.why()
            )];
        }
        let is_uncertain =
            refund.uncertain_since.is_some() && choices(refund.state).contains(&RefundState::Ready);
        let again =
            || format!("A second person must approve to send it again: {}.", NeededFor::Uncertain.why());
        is_uncertain.then(again).into_iter().collect()
    }

    /// What holds for decisions about several refunds.
    pub(super) fn in_general(&self) -> Vec<String> {
        let mut all =
            vec!["A second person must approve to send again what may have been executed.".to_owned()];
        if let Some((first, others)) = self.0.split_first() {
            // Every rule counts, and a rule decides about no currency that it does not name.
            let least = first.iter().filter_map(|(currency, amount)| {
                let of_others: Option<Vec<i64>> =
                    others.iter().map(|rule| rule.get(currency).copied()).collect();
                let amount_minor = of_others?.into_iter().fold(*amount, i64::min);
                Some(Money { amount_minor, currency: currency.clone() }.to_string())
            });
            let least: Vec<String> = least.collect();
            all.push(match least.as_slice() {
                [] => "A second person must approve every decision.".to_owned(),
                amounts => format!(
                    "So it is with every decision about more than {}, and about another currency.",
                    amounts.join(" or ")
                ),
            });
        }
        all
    }
}

/// The fields of a decision: the state, the confirmation, the reason, and who decides. `two_people` says when a second person
/// is needed.
pub(super) fn decision_fields(who: &Who, choices: &[RefundState], two_people: &[String]) -> Markup {
    let meaning = |state: RefundState| match state {
        RefundState::Succeeded => "The bank paid it",
        RefundState::Failed => "The bank did not pay it, and it is over",
        RefundState::Cancelled => "The bank did not pay it, and it is withdrawn",
        RefundState::Review => "Look at it again: nothing is sent, and a person decides anew",
        _ => "Send it again",
    };
    html! {
        fieldset {
            legend { "What became of it" }
            @for choice in choices {
                label.choice { input type="radio" name="state" value=(choice.as_str()) required; " " (state(*choice)) " " (meaning(*choice)) }
            }
        }
        @if choices.contains(&RefundState::Ready) {
            label.choice {
                input type="checkbox" name="confirm" value="not_executed";
                " The bank says that it executed none of the earlier sends (needed to send again what may have been executed)"
            }
        }
        @for rule in two_people { p.hint { (rule) } }
        (reason_field("Reason: how you know"))
        (by_field(who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_above_which_amounts_a_second_person_is_needed() {
        let rules =
            |all: &[&str]| TwoPeople(all.iter().map(|rule| serde_json::from_str(rule).unwrap()).collect());
        let said = |all: &[&str]| rules(all).in_general().get(1).cloned();
        assert_eq!(said(&[]), None);
        let both = [r#"{"EUR": 100000, "USD": 5000}"#, r#"{"EUR": 90000}"#];
        let expected = "So it is with every decision about more than 900.00 EUR, and about another currency.";
        assert_eq!(said(&both).as_deref(), Some(expected));
        let none = [r#"{"EUR": 1}"#, r#"{"USD": 1}"#];
        assert_eq!(said(&none).as_deref(), Some("A second person must approve every decision."));
    }

    #[test]
    fn a_person_is_offered_what_the_database_takes_and_nothing_else() {
        use RefundState::{Accepted, Cancelled, Failed, Ready, Review, Sending, Succeeded, Unknown};
        assert_eq!(choices(Review), [Succeeded, Failed, Cancelled, Ready]);
        assert_eq!(choices(Unknown), [Succeeded, Failed]);
        assert_eq!(choices(Accepted), [Succeeded, Failed]);
        assert_eq!(choices(Failed), [Review, Ready]);
        assert_eq!(choices(Cancelled), [Review]);
        for state in [Ready, Sending, Succeeded] {
            assert!(choices(state).is_empty(), "{state}");
        }
    }
}

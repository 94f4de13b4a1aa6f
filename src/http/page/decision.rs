//! What a person may decide about a refund, and the fields of the form for it.

use maud::{Markup, html};

use super::super::Who;
use super::form::{by_field, reason_field};
use super::parts::state;
use crate::refund::State as RefundState;

/// What a person may decide about a refund in this state.
pub(super) fn choices(state: RefundState) -> Vec<RefundState> {
    let is_for_a_person = matches!(
        state,
        RefundState::Review | RefundState::Unknown | RefundState::Accepted | RefundState::Failed
    );
    let is_decided = |next: &RefundState| {
        let is_final = next.is_end() || *next == RefundState::Ready;
        // Recovery brings an unknown refund to a person first.
        is_final
            && state.may_move_to(*next)
            && !(state == RefundState::Unknown && *next == RefundState::Ready)
    };
    let (ends, again): (Vec<_>, Vec<_>) = RefundState::ALL
        .into_iter()
        .filter(|next| is_for_a_person && is_decided(next))
        .partition(|next| next.is_end());
    // What moves money once more stands last.
    [ends, again].concat()
}

/// The fields of a decision: the state, the confirmation, the reason, and who decides.
pub(super) fn decision_fields(who: &Who, choices: &[RefundState]) -> Markup {
    let meaning = |state: RefundState| match state {
        RefundState::Succeeded => "The bank paid it",
        RefundState::Failed => "The bank did not pay it, and it is over",
        RefundState::Cancelled => "The bank did not pay it, and it is withdrawn",
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
        (reason_field("Reason: how you know"))
        (by_field(who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_offered_what_the_database_takes_and_nothing_else() {
        use RefundState::{Accepted, Cancelled, Failed, Ready, Review, Sending, Succeeded, Unknown};
        assert_eq!(choices(Review), [Succeeded, Failed, Cancelled, Ready]);
        assert_eq!(choices(Unknown), [Succeeded, Failed]);
        assert_eq!(choices(Accepted), [Succeeded, Failed]);
        assert_eq!(choices(Failed), [Ready]);
        for state in [Ready, Sending, Succeeded, Cancelled] {
            assert!(choices(state).is_empty(), "{state}");
        }
    }
}

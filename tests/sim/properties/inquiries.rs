//! The properties of inquiries: they spend permits like every request, and an answer proves only what it says.

use refundd::refund::{RefundId, State};

use crate::bank::questions::Says;
use crate::clock::micros;
use crate::violation::{Checked, broken};
use crate::world::World;
use crate::world::node::{Ask, UnsettledInquiry};
use crate::world::row::Row;

/// Checks a row that was leased for an inquiry.
pub(super) fn leased(id: RefundId, old: &Row, ran: i64) -> Checked<()> {
    let wrong =
        |what: &str| broken("only what may be asked about is asked about", format!("refund {id} {what}"));
    if !matches!(old.state, State::Unknown | State::Accepted) {
        return wrong(&format!("is {}", old.state));
    }
    if old.paused {
        return wrong("is on a paused channel");
    }
    if old.cool_us.is_some_and(|until| until > ran) {
        return wrong("is on a cooling channel");
    }
    if old.inquire_us.is_none_or(|at| at > ran) {
        return wrong("was not to be asked about yet");
    }
    Ok(())
}

impl World<'_> {
    /// Checks an inquiry right before its first byte leaves.
    pub async fn may_ask(&mut self, ask: &Ask) -> Checked<()> {
        let id = ask.inquiry.id;
        // A clock that was set forward ends the lease of an inquiry at once, so the bank may be asked twice.
        let may_overlap = self.stage.was_set_forward;
        if !may_overlap && self.rows.get(&id.0).is_none_or(|row| row.inquiries != ask.inquiry.number) {
            return broken(
                "an inquiry is made only under its lease",
                format!("inquiry {} about refund {id} is not the last", ask.inquiry.number),
            );
        }
        self.spends(id, &ask.channel.limits).await
    }

    /// Checks a row after its inquiry was settled. `before` is the row before that; `moved` says whether the
    /// statement wrote to it.
    pub fn is_proved(&self, unsettled: &UnsettledInquiry, before: Option<Row>, moved: bool) -> Checked<()> {
        let inquiry = &unsettled.inquired.inquiry;
        let (Some(before), Some(after)) = (before, self.rows.get(&inquiry.id.0)) else { return Ok(()) };
        if moved && before.epoch != inquiry.epoch {
            return broken(
                "an inquiry speaks of the sends before it",
                format!(
                    "refund {} was asked about under lease {}, the row is {before:?}",
                    inquiry.id, inquiry.epoch
                ),
            );
        }
        if before.state == after.state {
            return Ok(());
        }
        let question = unsettled.place.map(|place| &self.bank.questions[place]);
        let says = question.map_or(Says::Nothing, |question| question.says);
        let final_after = self.plan.final_after(unsettled.channel_index);
        let proved = match after.state {
            State::Review => true,
            State::Ready => {
                let waited = question.map(|question| question.sent - before.uncertain_since);
                says == Says::NotFound
                    && before.state == State::Unknown
                    && final_after.is_some_and(|grace| waited.is_some_and(|waited| waited >= micros(grace)))
            }
            state => says == Says::Is(state),
        };
        if proved {
            return Ok(());
        }
        broken(
            "an answer proves what it says and no more",
            format!(
                "refund {} went from {} to {}, the bank said {says:?}",
                inquiry.id, before.state, after.state
            ),
        )
    }
}

//! Inquiries are requests like any other, and their answers prove what they say and no more.

use refundd::refund::{RefundId, State};

use super::{Lawful, Row, broken};
use crate::bank::questions::Says;
use crate::clock::micros;
use crate::node::{Ask, Word};
use crate::world::World;

/// A row was leased to be asked about.
pub(super) fn leased(id: RefundId, old: &Row, ran: i64) -> Lawful<()> {
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
    /// Right before the first byte leaves.
    pub async fn may_ask(&mut self, ask: &Ask) -> Lawful<()> {
        let id = ask.asked.id;
        // By a clock that was set forward the lease of an inquiry is over at once: the bank may be asked twice.
        let may_overlap = self.stage.was_set_forward;
        if !may_overlap && self.rows.get(&id.0).is_none_or(|row| row.inquiries != ask.asked.number) {
            return broken(
                "an inquiry is made only under its lease",
                format!("inquiry {} about refund {id} is not the last", ask.asked.number),
            );
        }
        self.spends(id, &ask.channel.limits).await
    }

    /// After what an inquiry came to was written down; the row was as in `before`, and
    /// was written if `moved`.
    pub fn is_proved(&self, word: &Word, before: Option<Row>, moved: bool) -> Lawful<()> {
        let asked = &word.inquired.asked;
        let (Some(before), Some(after)) = (before, self.rows.get(&asked.id.0)) else { return Ok(()) };
        if moved && before.epoch != asked.epoch {
            return broken(
                "an inquiry speaks of the sends before it",
                format!(
                    "refund {} was asked about under lease {}, the row is {before:?}",
                    asked.id, asked.epoch
                ),
            );
        }
        if before.state == after.state {
            return Ok(());
        }
        let question = word.place.map(|place| &self.bank.questions[place]);
        let says = question.map_or(Says::Nothing, |question| question.says);
        let final_after = self.plan.final_after(word.lane);
        let proved = match after.state {
            State::Review => true,
            State::Ready => {
                let waited = question.map(|asked| asked.sent - before.uncertain_since);
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
                asked.id, before.state, after.state
            ),
        )
    }
}

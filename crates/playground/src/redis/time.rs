//! The wall clock of a private Redis, which a test can step.

use jiff::{SignedDuration, Timestamp};

use super::PrivateRedis;
use crate::PlaygroundError;
use crate::clock::Clock;

impl PrivateRedis {
    /// Steps its wall clock by `by`, forward or back, while it runs. Needs [`RedisOptions::clock`]. Returns how far
    /// the clock is now ahead of the machine's clock. Fails if the server's `TIME` does not show the step.
    pub async fn step_clock(&self, by: SignedDuration) -> Result<SignedDuration, PlaygroundError> {
        let wanted = self.ahead() + by;
        self.set_clock(wanted)?;
        let (least, most) = self.shown_ahead().await?;
        let slack = Self::CLOCK_IS_SURE_TO;
        if wanted < least - slack || wanted > most + slack {
            return Err(PlaygroundError::Clock { wanted, least, most });
        }
        Ok(wanted)
    }

    /// How far its wall clock was set ahead of the machine's clock.
    pub fn ahead(&self) -> SignedDuration {
        self.clock.as_ref().map_or(SignedDuration::ZERO, Clock::ahead)
    }

    /// The least and the most by which the server's `TIME` is ahead of the machine's clock. The call itself takes a
    /// moment, so there are two bounds.
    async fn shown_ahead(&self) -> Result<(SignedDuration, SignedDuration), PlaygroundError> {
        let before = Timestamp::now().as_duration();
        let answer = self.ask("TIME", 5).await?;
        let after = Timestamp::now().as_duration();
        // The reply: `*2`, then for each number its length and the number.
        let number = |line: usize| answer.get(line).and_then(|text| text.parse::<i64>().ok());
        let unread = || PlaygroundError::Say {
            words: "TIME".to_owned(),
            source: std::io::Error::other(answer.join(" ")),
        };
        let (seconds, micros) = number(2).zip(number(4)).ok_or_else(unread)?;
        let shown = SignedDuration::from_micros(seconds * 1_000_000 + micros);
        Ok((shown - after, shown - before))
    }

    pub(super) fn set_clock(&self, ahead: SignedDuration) -> Result<(), PlaygroundError> {
        match &self.clock {
            Some(clock) => clock.set(ahead),
            None if ahead.is_zero() => Ok(()),
            None => Err(std::io::Error::other("its clock is the machine's")),
        }
        .map_err(|source| PlaygroundError::Say { words: "what the time is".to_owned(), source })
    }
}

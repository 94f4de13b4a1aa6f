//! In which fields a repeated save differs from the saved refund of the same ref.
//!
//! Only values that cannot be private are kept: amount, currency and channel. Of the others the name is enough.

use std::fmt;

use crate::refund::{NewRefund, Refund, card};

/// The fields that differ. As text: `payment_ref, amount_minor (saved 1250, sent 1300)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences(Vec<(&'static str, Option<(String, String)>)>);

impl Differences {
    /// Compares a saved refund with the one that was sent. Postgres compares payloads, and knows for which channel a moved
    /// refund was saved.
    pub(super) fn between(saved: &Refund, sent: &NewRefund, same_channel: bool, same_payload: bool) -> Self {
        let (was, is) = (&saved.money, &sent.money);
        let values =
            |saved: &dyn fmt::Display, sent: &dyn fmt::Display| Some((saved.to_string(), sent.to_string()));
        let all = [
            (
                same_channel,
                "channel",
                values(&card::masked(&saved.channel), &card::masked(sent.channel.as_str())),
            ),
            (saved.payment_ref == sent.payment_ref, "payment_ref", None),
            (
                was.amount_minor == is.amount_minor,
                "amount_minor",
                values(&was.amount_minor, &is.amount_minor),
            ),
            (was.currency == is.currency, "currency", values(&was.currency, &is.currency)),
            (same_payload, "payload", None),
        ];
        Differences(
            all.into_iter().filter(|(same, ..)| !same).map(|(_, field, values)| (field, values)).collect(),
        )
    }

    /// These fields, without their values.
    pub fn of_fields(fields: impl IntoIterator<Item = &'static str>) -> Self {
        Differences(fields.into_iter().map(|field| (field, None)).collect())
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the fields.
    #[must_use]
    pub fn fields(&self) -> Vec<&'static str> {
        self.0.iter().map(|(field, _)| *field).collect()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (field, values)) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{field}")?;
            if let Some((saved, sent)) = values {
                write!(f, " (saved {saved}, sent {sent})")?;
            }
        }
        Ok(())
    }
}

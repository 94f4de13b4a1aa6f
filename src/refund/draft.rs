//! A draft: a refund as a caller wrote it, before any check.
//!
//! The check names every wrong field at once, with the given value and the allowed values. So a caller can
//! repair all fields in one go. HTTP and the command line share this module. Both refuse the same things with
//! the same texts.
//!
//! The module does not know whether the channel exists or has room, or whether the ref is taken: the store
//! decides. The module reads no clock: recovery handles a deadline that has passed.

mod field;
mod payload;
mod time;

use serde::Serialize;
use serde_json::Value;

pub use self::field::shortened;
use self::field::{allowed, kind_of, nearest};
use super::{AmountBounds, CardFields, ChannelName, Money, NewRefund, Payload, card, text};

/// The fields of a draft, in the order in which problems are listed.
pub const FIELDS: [&str; 8] =
    ["refund_ref", "channel", "payment_ref", "amount_minor", "currency", "payload", "due_at", "deadline_at"];

/// How many unknown fields are listed. Further unknown fields are only counted.
const UNKNOWN_FIELDS_LISTED: usize = 20;

const CARD_PROBLEM: &str = "holds a card number, and refundd keeps none; remove it, or, if it is no card number, set \
     `card_numbers = \"accepted\"` for the channel";

/// The same where the node's own file accepts them.
const PUBLISHED_CARD_PROBLEM: &str = "holds a card number, and the settings published last accept none; remove it, or, \
     if it is no card number, set `card_numbers = \"accepted\"` for the channel on every node, and reload them all";

/// One problem of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    pub field: String,
    /// The given value as JSON, shortened; `None` if no value was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The problem and the allowed values, for people.
    pub message: String,
}

impl FieldError {
    #[must_use]
    pub fn new(field: &str, value: Option<&Value>, message: impl Into<String>) -> Self {
        // A field may be a name that nobody knows, and a message may quote the value.
        let (field, message) = (card::masked(field).into_owned(), card::masked(&message.into()).into_owned());
        FieldError { field, value: value.map(shortened), message }
    }
}

/// What a channel's file says about its drafts.
#[derive(Debug, Clone, Default)]
pub struct DraftRules {
    /// Numbers may look like card numbers.
    pub accepts_card_numbers: bool,
    pub amount_bounds: AmountBounds,
}

/// Why a draft is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedDraft {
    /// Every problem.
    pub errors: Vec<FieldError>,
    /// The refund, if each of its fields can be read, and only rules refuse it: those of the channel, of texts, and of times.
    /// Rules become stricter, so it may be saved already.
    pub readable: Option<Box<NewRefund>>,
}

/// A refund as the caller wrote it. Every field may be missing, and no field is checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft<'a> {
    pub refund_ref: Option<String>,
    pub channel: Option<String>,
    pub payment_ref: Option<String>,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    pub payload: Option<&'a Value>,
    pub due_at: Option<String>,
    pub deadline_at: Option<String>,
}

impl Draft<'_> {
    /// Reads and checks a refund written as JSON. `rules` gives a channel's rules, and the default for a channel that this
    /// process does not know.
    ///
    /// # Errors
    /// Returns every problem: first those of known fields in the order of [`FIELDS`], then those of unknown fields.
    pub fn check(
        json: &Value,
        rules: &dyn Fn(&ChannelName) -> DraftRules,
    ) -> Result<NewRefund, Vec<FieldError>> {
        Draft::read(json, rules).map_err(|refusal| refusal.errors)
    }

    /// The same, for a caller that also wants to know whether a refused refund is saved already.
    ///
    /// # Errors
    /// As [`Draft::check`].
    pub fn read(json: &Value, rules: &dyn Fn(&ChannelName) -> DraftRules) -> Result<NewRefund, RefusedDraft> {
        let Value::Object(given) = json else {
            let message = format!("a refund is a JSON object, not {}", kind_of(json));
            let errors = vec![FieldError::new("refund", Some(json), message)];
            return Err(RefusedDraft { errors, readable: None });
        };
        let mut wrong = Vec::new();
        let draft = Draft {
            refund_ref: string(given.get("refund_ref"), "refund_ref", &mut wrong),
            channel: string(given.get("channel"), "channel", &mut wrong),
            payment_ref: string(given.get("payment_ref"), "payment_ref", &mut wrong),
            amount_minor: amount(given.get("amount_minor"), given.get("currency"), &mut wrong),
            currency: string(given.get("currency"), "currency", &mut wrong),
            payload: given.get("payload"),
            due_at: string(given.get("due_at"), "due_at", &mut wrong),
            deadline_at: string(given.get("deadline_at"), "deadline_at", &mut wrong),
        };
        let unknown: Vec<&String> = given.keys().filter(|key| !FIELDS.contains(&key.as_str())).collect();
        let judged = draft.judge(wrong, rules);
        if unknown.is_empty() {
            return judged;
        }
        let mut wrong = judged.err().map(|refusal| refusal.errors).unwrap_or_default();
        for key in unknown.iter().take(UNKNOWN_FIELDS_LISTED) {
            let name = field::cut(&card::masked(key));
            wrong.push(FieldError::new(&name, given.get(*key), field::unknown(&name, &FIELDS)));
        }
        if let Some(more @ 1..) = unknown.len().checked_sub(UNKNOWN_FIELDS_LISTED) {
            wrong.push(FieldError::new("refund", None, format!("{more} more fields are unknown")));
        }
        Err(RefusedDraft { errors: wrong, readable: None })
    }

    /// Checks the values. `wrong` already has the fields that could not be read.
    fn judge(
        self,
        mut wrong: Vec<FieldError>,
        rules: &dyn Fn(&ChannelName) -> DraftRules,
    ) -> Result<NewRefund, RefusedDraft> {
        // The problems of fields that can be read.
        let mut broken = Vec::new();
        let refund_ref = reference(self.refund_ref, "refund_ref", &mut wrong, &mut broken);
        let channel = required(self.channel, "channel", &mut wrong).and_then(|name| {
            let checked = ChannelName::new(&name);
            if checked.is_err() {
                wrong.push(FieldError::new("channel", Some(&name.into()), allowed("channel")));
            }
            checked.ok()
        });
        let payment_ref = reference(self.payment_ref, "payment_ref", &mut wrong, &mut broken);
        let amount_minor = required(self.amount_minor, "amount_minor", &mut wrong).filter(|amount| {
            if *amount <= 0 {
                wrong.push(FieldError::new("amount_minor", Some(&(*amount).into()), allowed("amount_minor")));
            }
            *amount > 0
        });
        let currency = required(self.currency, "currency", &mut wrong).filter(|code| {
            let problem = field::currency_problem(code);
            if let Some(problem) = &problem {
                wrong.push(FieldError::new("currency", Some(&code.as_str().into()), problem.clone()));
            }
            problem.is_none()
        });
        let payload = self.payload.filter(|payload| !payload.is_null());
        if let Some(problem) = payload.and_then(payload::problem) {
            wrong.push(FieldError::new("payload", payload, problem));
        }
        let payload = payload.map(Payload::from);
        let rules = channel.as_ref().map(rules).unwrap_or_default();
        if let (Some(amount_minor), Some(currency)) = (amount_minor, currency.clone())
            && let Some(problem) =
                rules.amount_bounds.problem("the channel", &Money { amount_minor, currency })
        {
            broken.push(FieldError::new("amount_minor", Some(&amount_minor.into()), problem));
        }
        if !rules.accepts_card_numbers {
            let fields = CardFields::of(refund_ref.as_deref(), payment_ref.as_deref(), payload.as_ref());
            // Without the values, which are the numbers.
            broken.extend(fields.names().map(|field| FieldError::new(field, None, CARD_PROBLEM)));
        }
        let due_at = time::read(self.due_at.as_deref(), "due_at", &mut wrong);
        let deadline_at = time::read(self.deadline_at.as_deref(), "deadline_at", &mut wrong);
        if let (Some(due), Some(deadline)) = (due_at, deadline_at)
            && deadline <= due
        {
            let message = format!("must be after due_at, which is {due}");
            broken.push(FieldError::new("deadline_at", self.deadline_at.map(Value::from).as_ref(), message));
        }
        let refund = match (refund_ref, channel, payment_ref, amount_minor, currency) {
            (Some(refund_ref), Some(channel), Some(payment_ref), Some(amount_minor), Some(currency))
                if wrong.is_empty() =>
            {
                Some(NewRefund {
                    refund_ref,
                    channel,
                    payment_ref,
                    money: Money { amount_minor, currency },
                    payload,
                    due_at,
                    deadline_at,
                    traceparent: None,
                })
            }
            _ => None,
        };
        match refund {
            Some(refund) if broken.is_empty() => Ok(refund),
            readable => {
                wrong.append(&mut broken);
                wrong.sort_by_key(|error| FIELDS.iter().position(|field| *field == error.field));
                Err(RefusedDraft { errors: wrong, readable: readable.map(Box::new) })
            }
        }
    }
}

/// Whether a text is the code of a currency that a bank can pay.
#[must_use]
pub fn is_currency(code: &str) -> bool {
    field::currency_problem(code).is_none()
}

/// The error for a channel that no node runs. It names the most similar channel in `known`, if there is one.
#[must_use]
pub fn no_such_channel<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> FieldError {
    let meant = nearest(name, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    FieldError::new("channel", Some(&name.into()), format!("no node runs this channel{meant}"))
}

/// The errors for card numbers that the published settings of a channel do not accept.
#[must_use]
pub fn card_numbers_refused(fields: CardFields) -> Vec<FieldError> {
    fields.names().map(|field| FieldError::new(field, None, PUBLISHED_CARD_PROBLEM)).collect()
}

fn required<T>(value: Option<T>, field: &str, wrong: &mut Vec<FieldError>) -> Option<T> {
    if value.is_none() && !wrong.iter().any(|error| error.field == field) {
        wrong.push(FieldError::new(field, None, format!("is missing; {}", allowed(field))));
    }
    value
}

/// Reads a reference. `wrong` gets the problem of one that nobody could ever save, and `broken` that of another one.
fn reference(
    value: Option<String>,
    field: &str,
    wrong: &mut Vec<FieldError>,
    broken: &mut Vec<FieldError>,
) -> Option<String> {
    let reference = required(value, field, wrong)?;
    let (problem, is_readable) = match reference.chars().count() {
        0 => (Some("is empty".to_owned()), false),
        // Postgres keeps no NUL.
        1..=200 => (text::reference_problem(&reference), !reference.contains('\0')),
        n => (Some(format!("has {n} characters")), false),
    };
    let Some(problem) = problem else { return Some(reference) };
    let message = format!("{problem}; {}", allowed(field));
    let error = FieldError::new(field, Some(&reference.as_str().into()), message);
    if is_readable { broken } else { wrong }.push(error);
    is_readable.then_some(reference)
}

/// Reads a text field. JSON null counts as a missing field.
fn string(value: Option<&Value>, field: &str, wrong: &mut Vec<FieldError>) -> Option<String> {
    match value {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => {
            let message = format!("is {}, not a string; {}", kind_of(other), allowed(field));
            wrong.push(FieldError::new(field, Some(other), message));
            None
        }
    }
}

fn amount(value: Option<&Value>, currency: Option<&Value>, wrong: &mut Vec<FieldError>) -> Option<i64> {
    let value = value.filter(|value| !value.is_null())?;
    let number = value.as_i64();
    if number.is_none() {
        let currency = currency.and_then(Value::as_str).filter(|code| is_currency(code)).unwrap_or("EUR");
        wrong.push(FieldError::new("amount_minor", Some(value), field::amount_problem(value, currency)));
    }
    number
}

#[cfg(test)]
mod tests;

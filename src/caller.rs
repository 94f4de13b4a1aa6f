//! Callers: the programs that may use the HTTP interface, how each proves its name, and what each may do.
//!
//! Values only; `config` reads them from the file, and `http` asks them. A caller may do nothing that its `may` does not
//! name, and reaches no channel and no limit that the file does not name for it.

pub mod rate;
pub mod scope;
pub mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::rate::Rate;
use self::scope::CallerScope;
use self::token::{StoredToken, id_of};
use crate::refund::{AmountBounds, CallerName, Money};

/// Before its end a token is warned about for this long, so that people have time to make the next one.
const WARNS_BEFORE: Duration = Duration::from_hours(14 * 24);

/// The channels or the limits that a caller reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    All,
    These(BTreeSet<String>),
}

impl Names {
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::These(names) => names.contains(name),
        }
    }

    /// The names; `None` for all.
    #[must_use]
    pub fn these(&self) -> Option<Vec<String>> {
        match self {
            Names::All => None,
            Names::These(names) => Some(names.iter().cloned().collect()),
        }
    }
}

/// One program that may use the HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: CallerName,
    /// At most two, so that a new token is valid before the old one is given up.
    pub tokens: Vec<StoredToken>,
    /// The name in the client certificate. A caller with tokens and a certificate must show both.
    pub certificate: Option<String>,
    pub may: BTreeSet<CallerScope>,
    pub channels: Names,
    /// The limits of which it may acquire permits.
    pub limits: Names,
    /// How many requests a node takes of it; `None` for no bound of its own.
    pub rate: Option<Rate>,
    /// The highest amount of one refund, for each currency; empty for no bound. With bounds, a currency without one is
    /// refused.
    pub most: AmountBounds,
}

/// Why an amount is too high for a caller: the field, and the message about it.
pub type TooHigh = (&'static str, String);

impl Caller {
    /// Checks a refund's amount against the caller's bounds.
    ///
    /// # Errors
    /// When the amount is above the bound, or when the currency has none.
    pub fn check_amount(&self, money: &Money) -> Result<(), TooHigh> {
        let Some(problem) = self.most.problem(&format!("caller `{}`", self.name), money) else {
            return Ok(());
        };
        let is_known = self.most.0.contains_key(&money.currency);
        Err((if is_known { "amount_minor" } else { "currency" }, problem))
    }
}

/// The names in the client certificate of a connection, verified by the listener. It sets them as an extension of each
/// request of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientNames(pub Arc<[String]>);

/// Why a request's caller is not known. No variant has anything that the request brought.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotKnown {
    #[error(
        "the request has no `Authorization: Bearer` token, and no client certificate that is enough by itself"
    )]
    NoToken,
    #[error("the `Authorization` header is no valid `Bearer` token")]
    WrongToken,
    #[error("the token of caller `{0}` has expired")]
    ExpiredToken(CallerName),
    #[error("the token is one of caller `{0}`, which must show its client certificate, too")]
    NoCertificate(CallerName),
}

/// All callers of the configuration. While there is none, every program that reaches the node may do everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Callers(pub BTreeMap<CallerName, Arc<Caller>>);

impl Callers {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the caller that shows `token` and a client certificate with `names`. A wrong token is refused even beside a
    /// right certificate.
    ///
    /// # Errors
    /// When the request does not prove its caller.
    pub fn identify(
        &self,
        token: Option<&str>,
        names: &[String],
        now: Timestamp,
    ) -> Result<Arc<Caller>, NotKnown> {
        let has_name = |caller: &Caller| {
            let certificate = caller.certificate.as_deref();
            certificate.is_none_or(|name| names.iter().any(|shown| shown.eq_ignore_ascii_case(name)))
        };
        if let Some(token) = token {
            let id = id_of(token).ok_or(NotKnown::WrongToken)?;
            let found = self.tokens().find(|(_, stored)| stored.id == id);
            let (caller, stored) = found.ok_or(NotKnown::WrongToken)?;
            if !stored.is(token) {
                return Err(NotKnown::WrongToken);
            }
            if stored.expires <= now {
                return Err(NotKnown::ExpiredToken(caller.name.clone()));
            }
            if !has_name(caller) {
                return Err(NotKnown::NoCertificate(caller.name.clone()));
            }
            return Ok(Arc::clone(caller));
        }
        let by_certificate = |caller: &&Arc<Caller>| {
            caller.tokens.is_empty() && caller.certificate.is_some() && has_name(caller)
        };
        let mut found = self.0.values().filter(by_certificate);
        match (found.next(), found.next()) {
            (Some(caller), None) => Ok(Arc::clone(caller)),
            // A certificate with the names of several callers does not say which one it is.
            _ => Err(NotKnown::NoToken),
        }
    }

    /// Every token, with its caller.
    pub fn tokens(&self) -> impl Iterator<Item = (&Arc<Caller>, &StoredToken)> {
        self.0.values().flat_map(|caller| caller.tokens.iter().map(move |token| (caller, token)))
    }

    /// A sentence about each token that has expired, or that expires within 14 days.
    #[must_use]
    pub fn warnings(&self, now: Timestamp) -> Vec<String> {
        let soon = now.saturating_add(WARNS_BEFORE).unwrap_or(Timestamp::MAX);
        self.tokens()
            .filter(|(_, token)| token.expires <= soon)
            .map(|(caller, StoredToken { id, expires, .. })| {
                let name = &caller.name;
                if *expires <= now {
                    format!("caller `{name}`: token {id} expired at {expires} and is refused; remove its line")
                } else {
                    format!("caller `{name}`: token {id} expires at {expires}; make the next one with `refundd token`")
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::token::Token;
    use super::*;

    fn name(name: &str) -> CallerName {
        CallerName::new(name).unwrap()
    }

    fn caller(of: &str, tokens: Vec<StoredToken>, certificate: Option<&str>) -> Caller {
        Caller {
            name: name(of),
            tokens,
            certificate: certificate.map(str::to_owned),
            may: BTreeSet::new(),
            channels: Names::All,
            limits: Names::All,
            rate: None,
            most: AmountBounds::default(),
        }
    }

    fn callers(all: impl IntoIterator<Item = Caller>) -> Callers {
        Callers(all.into_iter().map(|caller| (caller.name.clone(), Arc::new(caller))).collect())
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_caller_until_it_expires() {
        let (old, new, other) = (Token::mint().unwrap(), Token::mint().unwrap(), Token::mint().unwrap());
        let shop = caller("shop", vec![old.stored(second(100)), new.stored(second(200))], None);
        let callers = callers([shop, caller("desk", vec![other.stored(second(100))], None)]);
        let who = |token: &str, now| {
            callers.identify(Some(token), &[], second(now)).map(|caller| caller.name.to_string())
        };
        assert_eq!(who(old.expose(), 99), Ok("shop".to_owned()));
        assert_eq!(who(new.expose(), 99), Ok("shop".to_owned()));
        assert_eq!(who(other.expose(), 99), Ok("desk".to_owned()));
        assert_eq!(who(old.expose(), 100), Err(NotKnown::ExpiredToken(name("shop"))));
        assert_eq!(who(new.expose(), 100), Ok("shop".to_owned()));
        let stranger = Token::mint().unwrap();
        assert_eq!(who(stranger.expose(), 99), Err(NotKnown::WrongToken));
        assert_eq!(who("", 99), Err(NotKnown::WrongToken));
        assert_eq!(callers.identify(None, &[], second(99)), Err(NotKnown::NoToken));
        // The right id with another secret.
        let (start, _) = old.expose().rsplit_once('_').unwrap();
        let (_, end) = stranger.expose().rsplit_once('_').unwrap();
        assert_eq!(who(&format!("{start}_{end}"), 99), Err(NotKnown::WrongToken));
    }

    #[test]
    fn a_certificate_stands_beside_a_token_or_instead_of_one() {
        let token = Token::mint().unwrap();
        let both = caller("both", vec![token.stored(second(100))], Some("both.internal"));
        let callers = callers([both, caller("desk", Vec::new(), Some("desk.internal"))]);
        let who = |token: Option<&str>, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            callers.identify(token, &names, second(1)).map(|caller| caller.name.to_string())
        };
        assert_eq!(who(None, &["x", "Desk.Internal"]), Ok("desk".to_owned()));
        assert_eq!(who(None, &["both.internal"]), Err(NotKnown::NoToken));
        assert_eq!(who(Some(token.expose()), &[]), Err(NotKnown::NoCertificate(name("both"))));
        assert_eq!(who(Some(token.expose()), &["desk.internal"]), Err(NotKnown::NoCertificate(name("both"))));
        assert_eq!(who(Some(token.expose()), &["both.internal"]), Ok("both".to_owned()));
        assert_eq!(who(Some("rfd_0_0"), &["desk.internal"]), Err(NotKnown::WrongToken));
    }

    #[test]
    fn a_certificate_with_the_names_of_two_callers_is_neither() {
        let callers = callers([
            caller("a", Vec::new(), Some("a.internal")),
            caller("b", Vec::new(), Some("b.internal")),
        ]);
        let names = ["a.internal", "b.internal"].map(str::to_owned);
        assert_eq!(callers.identify(None, &names, second(1)), Err(NotKnown::NoToken));
    }

    #[test]
    fn an_amount_above_the_callers_bound_names_its_field() {
        let mut shop = caller("shop", Vec::new(), None);
        let money = |amount_minor, currency: &str| Money { amount_minor, currency: currency.to_owned() };
        assert_eq!(shop.check_amount(&money(i64::MAX, "JPY")), Ok(()));
        shop.most = AmountBounds(Arc::new(BTreeMap::from([("EUR".to_owned(), 500)])));
        assert_eq!(shop.check_amount(&money(500, "EUR")), Ok(()));
        assert_eq!(shop.check_amount(&money(501, "EUR")).unwrap_err().0, "amount_minor");
        assert_eq!(shop.check_amount(&money(1, "JPY")).unwrap_err().0, "currency");
    }

    #[test]
    fn tokens_that_end_within_two_weeks_are_warned_about() {
        let day = 86_400;
        let tokens = [0, 13, 15].map(|days| Token::mint().unwrap().stored(second(days * day)));
        let warnings = callers(
            tokens.map(|token| caller(&format!("c{}", token.expires.as_second() / day), vec![token], None)),
        )
        .warnings(second(1));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("expired at") && warnings[1].contains("expires at"), "{warnings:?}");
    }
}

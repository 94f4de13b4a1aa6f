//! Fuzz targets: everything that strangers can send, read by the product's own code.
//!
//! A target takes bytes and checks properties: nothing panics, an accepted value is written and read again as itself, no
//! text for people shows a card number or commands a terminal, and a small input makes little work. Two drivers run the
//! targets. libFuzzer (`make fuzz`) searches for hours; its crate stands in `fuzz`. The tests of this module run every seed
//! of `fuzz/seeds`, and the same mutations of the seeds each time.
//!
//! The shipped program does not have this module.

mod bank_answer;
mod bank_wire;
mod batch;
mod card;
mod config;
mod csv;
mod draft;
mod redis_address;
mod redis_reply;
mod signature;
#[cfg(test)]
mod tests;
mod token;

use std::sync::LazyLock;

use crate::config::Config;
use crate::refund::{NewRefund, Payload, card as card_numbers, text};

/// Reads one input and panics if a property does not hold.
pub type FuzzTarget = fn(&[u8]);

/// Every target with its name, which is also the name of the folder with its seeds.
pub const TARGETS: [(&str, FuzzTarget); 11] = [
    ("bank_answer", bank_answer::target),
    ("bank_wire", bank_wire::target),
    ("batch", batch::target),
    ("card", card::target),
    ("config", config::target),
    ("csv", csv::target),
    ("draft", draft::target),
    ("redis_address", redis_address::target),
    ("redis_reply", redis_reply::target),
    ("signature", signature::target),
    ("token", token::target),
];

/// Runs the target of this name on one input.
pub fn run(name: &str, input: &[u8]) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = found.unwrap_or_else(|| panic!("there is no target `{name}`"));
    target(input);
}

/// A configuration with every kind of channel that the targets need.
static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let text = include_str!("fuzzing/config.toml");
    Config::parse(text, "fuzz.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"))
});

/// The input as lines of text up to the first blank line, and the bytes after that line.
fn head_and_rest(input: &[u8]) -> (Vec<&str>, &[u8]) {
    let (mut lines, mut rest) = (Vec::new(), input);
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (line, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        rest = after;
        match std::str::from_utf8(line) {
            Ok("") | Err(_) => return (lines, rest),
            Ok(line) => lines.push(line),
        }
        if rest.is_empty() {
            return (lines, rest);
        }
    }
}

/// Checks what every accepted refund must be, whichever way in it took.
fn is_sound(refund: &NewRefund) {
    for reference in [&refund.refund_ref, &refund.payment_ref] {
        assert!((1..=200).contains(&reference.chars().count()), "{refund:?}");
        assert_eq!(text::problem(reference), None, "{refund:?}");
        assert!(!card_numbers::is_in(reference), "{refund:?}");
    }
    assert!(refund.money.amount_minor > 0, "{refund:?}");
    assert!(!refund.payload.as_ref().is_some_and(Payload::holds_card), "{refund:?}");
    if let (Some(due), Some(deadline)) = (refund.due_at, refund.deadline_at) {
        assert!(due < deadline, "{refund:?}");
    }
}

/// Checks a text about a value that was refused. The rest of a text that was cut or masked may look like a card number by
/// chance, so such a text is not checked.
fn shows_no_card_number(shown: &str) {
    let is_whole = !shown.contains('…') && !shown.contains("***");
    assert!(!is_whole || !card_numbers::is_in(shown), "{shown} shows a card number");
}

/// The same for a text that quotes a value as JSON.
fn quotes_no_card_number(shown: &str) {
    shows_no_card_number(&unescaped(shown));
}

/// The text without the escapes of JSON, as a person reads it.
fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.chars());
    while let Some(character) = rest.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let code: String = rest.by_ref().take(4).collect();
                let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                out.push(code.unwrap_or('\u{fffd}'));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

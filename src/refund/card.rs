//! Finds card numbers, so that no way in takes one and nothing shows one.
//!
//! A card number has 13 to 19 digits, with one separator between two of them, or up to three between groups; it begins and
//! is as long as the numbers of a card scheme, and it passes the check of Luhn. A number that only looks like one is not to
//! be refused: one in ten passes Luhn by chance. So digits are left alone that belong to a UUID or to another hexadecimal
//! word, to an IBAN, to a telephone number with its `+`, to a decimal fraction, to an EAN-13 article number, or to a longer
//! list of numbers.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Number, Value};
use uuid::Uuid;

/// The problem of a text that a way in refuses.
pub const PROBLEM: &str = "holds a card number, and refundd keeps none; remove it";

/// The stars of the shortest mask. Three stars would be separators, and join the rest of the number to digits beside it.
pub const SHORTEST_MASK: &str = "****";

const FEWEST: usize = 13;
const MOST: usize = 19;
const SIGNS_OF_LISTS: [char; 3] = [':', ',', ';'];

/// Whether the text holds a card number.
#[must_use]
pub fn is_in(text: &str) -> bool {
    next(text, 0).is_some()
}

/// Whether a text, a key or a whole number anywhere in the value holds a card number.
#[must_use]
pub fn is_in_json(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => is_number(number),
        Value::String(text) => is_in(text),
        Value::Array(items) => items.iter().any(is_in_json),
        Value::Object(fields) => fields.iter().any(|(key, value)| is_in(key) || is_in_json(value)),
    }
}

/// The text with all but the first six and the last four digits of each card number hidden; of 13 digits the last three stay.
#[must_use]
pub fn masked(text: &str) -> Cow<'_, str> {
    let Some(mut found) = next(text, 0) else { return Cow::Borrowed(text) };
    let mut out = text.to_owned();
    loop {
        let digits: String = out[found.clone()].chars().filter(char::is_ascii_digit).collect();
        let hidden = (digits.len() - 10).max(SHORTEST_MASK.len());
        let mask = format!("{}{:*<hidden$}{}", &digits[..6], "", &digits[6 + hidden..]);
        out.replace_range(found.clone(), &mask);
        // The digits that are left may be a card number together with those beside them.
        match next(&out, reach_of(&out, found.start)) {
            Some(other) => found = other,
            None => return Cow::Owned(out),
        }
    }
}

/// Where the search goes on when the number at the byte `at` was masked. A number may begin earlier and go on there. And numbers
/// before it may have been left alone as parts of a UUID or an IBAN, which the masked number was a part of, too.
fn reach_of(text: &str, at: usize) -> usize {
    const LONGEST_WORD: usize = 43;
    let bytes = text.as_bytes();
    let (mut start, mut digits, mut between) = (at, 0, 0);
    while start > 0 && (at - start < LONGEST_WORD || (digits <= MOST && between <= 3)) {
        start -= 1;
        (digits, between) = if bytes[start].is_ascii_digit() {
            (digits + 1, 0)
        } else {
            (digits, between + usize::from(text.is_char_boundary(start)))
        };
    }
    // Not within a block of digits, which would look shorter than it is.
    while start > 0 && (bytes[start - 1].is_ascii_digit() || !text.is_char_boundary(start)) {
        start -= 1;
    }
    start
}

/// The value with the card numbers masked in each of its texts and keys.
#[must_use]
pub fn masked_json(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => masked(text).into(),
        Value::Array(items) => items.iter().map(masked_json).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (masked(key).into_owned(), masked_json(value))).collect()
        }
    }
}

/// A number with a fraction is an amount or a place, never a card.
fn is_number(number: &Number) -> bool {
    let whole = match (number.as_i64(), number.as_f64()) {
        (Some(small), _) if small.unsigned_abs() < 1_000_000_000_000 => return false,
        (None, Some(float)) if !number.is_u64() && float.fract() == 0.0 => format!("{float:.0}"),
        _ => number.to_string(),
    };
    !whole.contains(['.', 'e']) && is_in(&whole)
}

/// The first card number at or after the byte `from`.
fn next(text: &str, from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    // Nearly every text ends here.
    if bytes[from..].iter().filter(|byte| byte.is_ascii_digit()).take(FEWEST).count() < FEWEST {
        return None;
    }
    let mut blocks: Vec<Range<usize>> = Vec::new();
    // The first block that may still begin a number.
    let mut first = 0;
    let mut at = from;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = bytes[at..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |n| at + n);
        let block = at..end;
        at = end;
        if blocks.last().is_some_and(|last| !are_joined(text, last, &block)) {
            if let Some(found) = among(text, &blocks[first..]) {
                return Some(found);
            }
            blocks.clear();
            first = 0;
        } else if blocks.len() - first == MOST {
            // A number has at most as many blocks as digits. Waiting for the end of a long row of blocks would make the
            // search for all numbers quadratic.
            if let Some(found) = at_the_start(text, &blocks[first..]) {
                return Some(found);
            }
            first += 1;
        }
        blocks.push(block);
    }
    among(text, &blocks[first..])
}

/// Whether two blocks of digits may belong to one number: with one separator between them, or, where the blocks are as long
/// as the groups of a card, with up to three of any kind. A letter of another script separates as well: a database may not
/// know it for a letter.
fn are_joined(text: &str, block: &Range<usize>, next: &Range<usize>) -> bool {
    let between = &text[block.end..next.start];
    let are_groups = (4..=6).contains(&block.len()) && (3..=6).contains(&next.len());
    // A colon stands in times, a comma and a semicolon stand in lists and in long numbers.
    let most = if are_groups { 3 } else { usize::from(!between.contains(SIGNS_OF_LISTS)) };
    let mut characters = between.chars();
    characters.by_ref().take(most).all(|c| !c.is_ascii_alphanumeric()) && characters.next().is_none()
}

/// The first card number that begins with one block of digits and ends with a block.
fn among(text: &str, blocks: &[Range<usize>]) -> Option<Range<usize>> {
    (0..blocks.len()).find_map(|first| at_the_start(text, &blocks[first..]))
}

/// The card number that begins with the first block and ends with a block.
fn at_the_start(text: &str, blocks: &[Range<usize>]) -> Option<Range<usize>> {
    let start = blocks.first()?.start;
    let mut digits = [0; MOST];
    let mut count = 0;
    for (nth, block) in blocks.iter().enumerate() {
        if count + block.len() > MOST {
            break;
        }
        for digit in &text.as_bytes()[block.clone()] {
            digits[count] = digit - b'0';
            count += 1;
        }
        let range = start..block.end;
        let is_fraction = nth == 1 && text[..block.start].ends_with('.');
        let is_article = nth == 0 && is_ean(&digits[..count]);
        if is_card(&digits[..count])
            && !(is_fraction || is_article || is_in_a_list(text, &range) || belongs_elsewhere(text, &range))
        {
            return Some(range);
        }
    }
    None
}

/// Whether digits begin and are as long as the numbers of a card scheme, and pass Luhn.
fn is_card(digits: &[u8]) -> bool {
    let count = digits.len();
    if count < FEWEST {
        return false;
    }
    let prefix =
        |length: usize| digits[..length].iter().fold(0, |number, digit| number * 10 + u32::from(*digit));
    let is_of_a_scheme = match prefix(2) {
        40..=49 => matches!(count, 13 | 16 | 19),                     // Visa
        51..=55 => count == 16,                                       // Mastercard
        22..=27 => count == 16 && (2221..=2720).contains(&prefix(4)), // Mastercard
        34 | 37 => count == 15,                                       // American Express
        30 => count >= 14 && prefix(3) <= 305,                        // Diners Club
        36 | 38 | 39 => count >= 14,                                  // Diners Club
        35 => count >= 16,                                            // JCB
        50 | 56..=69 => true,                                         // Maestro, Discover, UnionPay
        _ => false,
    };
    is_of_a_scheme && passes_luhn(digits)
}

fn passes_luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(nth, digit)| match u32::from(*digit) {
            digit if nth % 2 == 0 => digit,
            digit if digit < 5 => digit * 2,
            digit => digit * 2 - 9,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Whether 13 digits are an article number with its own check digit.
fn is_ean(digits: &[u8]) -> bool {
    let weigh = |(nth, digit): (usize, &u8)| u32::from(*digit) * if nth % 2 == 0 { 1 } else { 3 };
    digits.len() == 13 && digits.iter().enumerate().map(weigh).sum::<u32>().is_multiple_of(10)
}

/// Whether a sign of lists separates the groups, and more numbers stand before or after them.
fn is_in_a_list(text: &str, range: &Range<usize>) -> bool {
    text[range.clone()].contains(SIGNS_OF_LISTS)
        && (goes_on(text[range.end..].chars()) || goes_on(text[..range.start].chars().rev()))
}

/// Whether a digit stands after up to three separators, one of which is a sign of lists.
fn goes_on(characters: impl Iterator<Item = char>) -> bool {
    let mut is_list = false;
    for character in characters.take(4) {
        if character.is_ascii_alphanumeric() {
            return is_list && character.is_ascii_digit();
        }
        is_list |= SIGNS_OF_LISTS.contains(&character);
    }
    false
}

/// Whether the digits are a part of something that is no card number.
fn belongs_elsewhere(text: &str, range: &Range<usize>) -> bool {
    let bytes = text.as_bytes();
    let is_letter_a_to_f =
        |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_hexdigit() && b.is_ascii_alphabetic());
    let before = range.start.checked_sub(1);
    before.is_some_and(|at| bytes[at] == b'+' || is_letter_a_to_f(at))
        || is_letter_a_to_f(range.end)
        || (range.start.saturating_sub(35)..=range.start).any(|start| {
            let end = start + 36;
            end >= range.end && text.get(start..end).is_some_and(|text| Uuid::try_parse(text).is_ok())
        })
        || (range.start.saturating_sub(42)..=range.start).any(|start| is_iban(text, start, range.end))
}

/// Whether an IBAN begins at the byte `start` and reaches the byte `end`. It may have single blanks.
fn is_iban(text: &str, start: usize, end: usize) -> bool {
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_letter = |at: usize| is_word(at) && !is_digit(at);
    let opens = is_letter(start) && is_letter(start + 1) && is_digit(start + 2) && is_digit(start + 3);
    if !opens || start.checked_sub(1).is_some_and(is_word) {
        return false;
    }
    let mut iban = Vec::with_capacity(34);
    let mut at = start;
    while iban.len() < 34 && (is_word(at) || (bytes.get(at) == Some(&b' ') && is_word(at + 1))) {
        if is_word(at) {
            iban.push(bytes[at]);
        }
        at += 1;
        if at >= end && iban.len() >= 15 && !is_word(at) && is_97(&iban) {
            return true;
        }
    }
    false
}

/// The check of ISO 13616: letters count from 10, the first four characters come last, and the rest by 97 is 1.
fn is_97(iban: &[u8]) -> bool {
    let rest = iban[4..].iter().chain(&iban[..4]).fold(0, |rest, character| match character {
        b'0'..=b'9' => (rest * 10 + u32::from(character - b'0')) % 97,
        letter => (rest * 100 + u32::from(letter.to_ascii_uppercase() - b'A') + 10) % 97,
    });
    rest == 1
}

#[cfg(test)]
mod tests;

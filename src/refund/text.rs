//! The rules for texts from outside: which characters no way in takes, and how a text is shown to people.
//!
//! A control character may command a terminal. A bidirectional control or a zero-width character makes people see
//! another text than programs read. So both are refused at every way in, and escaped wherever a text is shown: old rows
//! and banks may have them.
//!
//! The module does not look at payloads. They are passed on to the bank unchanged, and JSON may have line breaks.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character commands a terminal, or changes what people see without being seen: the control characters (C0,
/// DEL, C1), the zero-width characters, the bidirectional controls, the separators of lines, variation selectors, fillers and
/// tags. They are the characters that Unicode calls default ignorable, the annotation controls, and the empty Braille pattern.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    // Nearly every character, and pages have a hundred thousand.
    let is_plain = matches!(character, ' '..='~');
    !is_plain
        && (character.is_control()
            || matches!(
                character,
                '\u{ad}'
                    | '\u{34f}'
                    | '\u{61c}'
                    | '\u{115f}'..='\u{1160}'
                    | '\u{17b4}'..='\u{17b5}'
                    | '\u{180b}'..='\u{180f}'
                    | '\u{200b}'..='\u{200f}'
                    | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}'
                    | '\u{2800}'
                    | '\u{3164}'
                    | '\u{fe00}'..='\u{fe0f}'
                    | '\u{feff}'
                    | '\u{ffa0}'
                    | '\u{fff0}'..='\u{fffb}'
                    | '\u{1bca0}'..='\u{1bca3}'
                    | '\u{1d173}'..='\u{1d17a}'
                    | '\u{e0000}'..='\u{e0fff}'
            ))
}

/// A number with its noun: `1 refund`, `2 refunds`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The problem of a text that a way in must refuse; `None` if there is none.
#[must_use]
pub fn problem(text: &str) -> Option<String> {
    let hidden = text.chars().find(|character| is_hidden(*character))?;
    Some(format!(
        "holds U+{:04X}, a control character or another character that nobody sees",
        u32::from(hidden)
    ))
}

/// The same for a reference. Nobody sees a blank at its end either, and tools cut it off: then it names another refund. All blanks
/// look alike, so U+0020 is the only one.
#[must_use]
pub fn reference_problem(reference: &str) -> Option<String> {
    problem(reference).or_else(|| {
        let other = reference.chars().find(|character| *character != ' ' && character.is_whitespace());
        if let Some(other) = other {
            return Some(format!("holds U+{:04X}, a blank that looks like U+0020", u32::from(other)));
        }
        let has_blank_end = reference.starts_with(' ') || reference.ends_with(' ');
        has_blank_end.then(|| "begins or ends with U+0020, a blank".to_owned())
    })
}

/// The same for a person's name. The rows and the events have it before a reason, as `WHO: WHY`, and beside a second name,
/// as `WHO and WHO`. Where two people decide, two names that look alike must not be two people: Postgres folds their letters and
/// kinds of blanks, but not the number of blanks.
#[must_use]
pub fn name_problem(name: &str) -> Option<String> {
    problem(name).or_else(|| {
        let mut pairs = name.chars().zip(name.chars().skip(1));
        if pairs.any(|(one, next)| one.is_whitespace() && next.is_whitespace()) {
            return Some("holds two blanks in a row, and looks like the name with one".to_owned());
        }
        let mark = [": ", " and "].into_iter().find(|mark| name.contains(mark))?;
        Some(format!("holds `{mark}`, which ends a name in the events"))
    })
}

/// The text with every hidden character written out, such as `\u{1b}`: for one line of a terminal or a page.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden, |character, out| out.extend(character.escape_default()))
}

/// The same for a text of several lines, whose line breaks stay.
#[must_use]
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    let is_hidden = |character| character != '\n' && is_hidden(character);
    replaced(text, is_hidden, |character, out| out.extend(character.escape_default()))
}

/// The same for the text of a JSON value: programs read the same value. A hidden character that JSON does not escape by
/// itself stands inside a string, so `\u` may replace it.
#[must_use]
pub fn shown_json(json: String) -> String {
    let is_hidden = |character| character > '\u{1f}' && is_hidden(character);
    let escape = |character: char, out: &mut String| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    match replaced(&json, is_hidden, escape) {
        Cow::Owned(escaped) => escaped,
        Cow::Borrowed(_) => json,
    }
}

/// The text without its hidden characters.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden, |_, _| {})
}

/// The first characters of a text, at most `most`.
#[must_use]
pub fn first(mut text: String, most: usize) -> String {
    // A text of no more bytes has no more characters.
    if text.len() > most
        && let Some((end, _)) = text.char_indices().nth(most)
    {
        text.truncate(end);
    }
    text
}

fn replaced(
    text: &str,
    is_hidden: impl Fn(char) -> bool,
    replace: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.chars().any(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hidden(character) {
            replace(character, &mut out);
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_found_and_named_by_their_code_point() {
        for (text, named) in [
            ("a\0", "U+0000"),
            ("\u{1b}[2J", "U+001B"),
            ("a\nb", "U+000A"),
            ("\u{7f}", "U+007F"),
            ("\u{9b}31m", "U+009B"),
            ("R\u{200b}1", "U+200B"),
            ("\u{200f}", "U+200F"),
            ("a\u{ad}b", "U+00AD"),
            ("\u{34f}", "U+034F"),
            ("\u{61c}", "U+061C"),
            ("\u{180e}", "U+180E"),
            ("\u{2028}", "U+2028"),
            ("\u{2029}", "U+2029"),
            ("\u{202e}1-R", "U+202E"),
            ("\u{2060}", "U+2060"),
            ("\u{2064}", "U+2064"),
            ("\u{2066}", "U+2066"),
            ("\u{2069}", "U+2069"),
            ("\u{206a}", "U+206A"),
            ("\u{206f}", "U+206F"),
            ("\u{fe0f}", "U+FE0F"),
            ("R\u{e0041}", "U+E0041"),
            ("\u{e0101}", "U+E0101"),
            ("\u{feff}R-1", "U+FEFF"),
        ] {
            let problem = problem(text).unwrap();
            assert!(problem.contains(named) && !problem.contains(is_hidden), "{problem}");
        }
        for sound in
            ["", "R-1", "Größe 7 €", "日本語", "שלום", "\u{200a}\u{2010}\u{2027}\u{202f}\u{2070}", "👍"]
        {
            assert_eq!(problem(sound), None, "{sound}");
        }
    }

    #[test]
    fn a_name_that_looks_like_another_one_or_ends_early_in_the_events_is_refused() {
        for bad in ["Ann  Lee", "Ann\u{a0} Lee", "Ann \u{3000}Lee", "ann and bob", "ann: x", "a\u{200b}nn"] {
            assert!(name_problem(bad).is_some(), "{bad}");
        }
        for sound in ["", "ann", "Ann Lee", "Ann Mary Lee", "Ann\u{a0}Lee", "andy"] {
            assert_eq!(name_problem(sound), None, "{sound}");
        }
    }

    #[test]
    fn the_first_characters_of_a_text_are_whole() {
        assert_eq!(first("Größe €".to_owned(), 4), "Größ");
        assert_eq!(first("Größe €".to_owned(), 7), "Größe €");
        assert_eq!(first("Größe".to_owned(), 500), "Größe");
        assert_eq!(first("abc".to_owned(), 0), "");
    }

    #[test]
    fn a_shown_text_commands_no_terminal() {
        assert_eq!(shown("R-1 Größe"), "R-1 Größe");
        assert_eq!(shown("\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\n"), r"\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\n");
        assert_eq!(shown_lines("a\n\u{1b}b"), "a\n\\u{1b}b");
    }

    #[test]
    fn shown_json_means_the_same_to_programs() {
        let value =
            serde_json::json!({ "a\u{9b}": ["\u{1b}\u{7f}", "\u{202e}x\u{feff}\u{e0041}"], "b": "sound" });
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = shown_json(json);
            assert!(!shown.contains(|c| c != '\n' && is_hidden(c)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}

//! Shows people the beginning of what stands in Redis. Another program may have written anything of any length.

use std::fmt::{self, Debug, Write};

use redis::Value;

use super::BucketError;
use crate::refund::text;

/// The error of a reply that does not have the form that its script gives it.
pub(super) fn misread(what: &str, reply: &Value) -> BucketError {
    BucketError::Reply { what: what.to_owned(), reply: shown(reply) }
}

fn shown(reply: &impl Debug) -> String {
    let mut beginning = Beginning::default();
    let is_whole = write!(beginning, "{reply:?}").is_ok();
    beginning.for_people(is_whole)
}

/// The beginning of a text from Redis, for people.
pub(super) fn short(text: &str) -> String {
    let mut beginning = Beginning::default();
    let is_whole = beginning.write_str(text).is_ok();
    beginning.for_people(is_whole)
}

/// Takes the first characters that are written to it, and refuses the others. So nobody formats the rest.
#[derive(Default)]
struct Beginning {
    text: String,
    characters: usize,
}

impl Beginning {
    const MOST: usize = 100;

    fn for_people(&self, is_whole: bool) -> String {
        let dots = if is_whole { "" } else { "…" };
        text::shown(&self.text).chars().take(190).chain(dots.chars()).collect()
    }
}

impl Write for Beginning {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            if self.characters == Self::MOST {
                return Err(fmt::Error);
            }
            self.text.push(character);
            self.characters += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its text ends only when the writer refuses more of it.
    struct Endless;

    impl Debug for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("x")?;
            }
        }
    }

    #[test]
    fn only_the_beginning_of_a_misread_reply_is_formatted() {
        assert_eq!(shown(&Endless), format!("{}…", "x".repeat(100)));
        assert_eq!(shown(&Value::Int(7)), "int(7)");
        assert_eq!(short(&"x".repeat(100)), "x".repeat(100));
        assert_eq!(short(&"x".repeat(101)), format!("{}…", "x".repeat(100)));
    }
}

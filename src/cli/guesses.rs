//! What the command line answers to words that it does not know.
//!
//! clap guesses by the letters. Where the guess has the opposite meaning, or decides about money, no guess is shown:
//! the answer says what each word means.

use std::ffi::OsStr;
use std::fmt::Write;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use crate::refund::text::shown;

/// The words that an option takes, each with its meaning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meanings(pub &'static [(&'static str, &'static str)]);

impl TypedValueParser for Meanings {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        if let Some((word, _)) = self.0.iter().find(|(word, _)| value == *word) {
            return Ok((*word).to_owned());
        }
        let (given, arg) = (value.to_string_lossy(), arg.map(ToString::to_string).unwrap_or_default());
        let mut said = format!("invalid value '{}' for '{arg}'; it takes:\n", shown(&given));
        let wide = self.0.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
        for (word, meaning) in self.0 {
            let _ = write!(said, "\n  {word:<wide$}  {meaning}");
        }
        said.push('\n');
        Err(Error::raw(ErrorKind::InvalidValue, said).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|(word, meaning)| PossibleValue::new(*word).help(*meaning))))
    }
}

/// Words that people use for the opposite of a command, each with the command that they mean.
const OPPOSITES: [(&str, &str); 3] =
    [("unpause", "resume"), ("disapprove", "withdraw"), ("unapprove", "withdraw")];

/// Takes a guess out of the error that is the opposite of the word: `pause` for `unpause`.
pub(super) fn without_opposites(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let word = word.clone();
    let Some(ContextValue::Strings(guesses)) = error.get(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    if guesses.iter().any(|guess| word != *guess && word.ends_with(guess.as_str())) {
        error.remove(ContextKind::SuggestedSubcommand);
        if let Some((_, meant)) = OPPOSITES.iter().find(|(opposite, _)| *opposite == word) {
            let meant = ContextValue::Strings(vec![(*meant).to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, meant);
        }
    }
    error
}

//! Reads the settings of measurements from environment variables.

use anyhow::Context;

/// The number in an environment variable, if the variable is set. Fails when its text is not a number.
pub fn number(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{variable}={text} is not a number"))
}

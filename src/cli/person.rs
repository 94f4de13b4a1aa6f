//! The person who gives a command: the name for the journal, and the rules for a person's words.

use anyhow::bail;

use crate::refund::{card, text};

/// The name of the person who gives a command, for the journal.
#[derive(Debug, clap::Args)]
pub(super) struct By {
    /// Who decides, for the journal [default: the user who runs this]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl By {
    pub(super) fn name(&self) -> anyhow::Result<String> {
        let name = self.by.as_deref().map(str::trim);
        if name.is_some_and(str::is_empty) {
            bail!("--by is empty: say who decides, or leave it out; nothing was changed");
        }
        let name = name.map_or_else(user, str::to_owned);
        if let Some(problem) = text::name_problem(&name) {
            bail!("--by {problem}; nothing was changed");
        }
        check_text("--by", 100, &name)?;
        Ok(name)
    }
}

/// Refuses a person's text that no way in takes: one of more than `most` characters, or with a hidden one, or a card number.
pub(super) fn check_text(flag: &str, most: usize, text: &str) -> anyhow::Result<()> {
    let length = text.chars().count();
    let too_long = (length > most).then(|| format!("has {length} characters, and may have {most}"));
    let problem = too_long.or_else(|| text::problem(text));
    match problem.or_else(|| card::is_in(text).then(|| card::PROBLEM.to_owned())) {
        Some(problem) => bail!("{flag} {problem}; nothing was changed"),
        None => Ok(()),
    }
}

/// The user who runs this command. A job of cron may have none of these variables: then the system knows the name.
fn user() -> String {
    let from = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let id = rustix::process::getuid().as_raw();
    let of_the_system = || name_of(id, &std::fs::read_to_string("/etc/passwd").unwrap_or_default());
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(from);
    named.or_else(of_the_system).unwrap_or_else(|| format!("uid {id}"))
}

/// The name of the user with this number, in the form of /etc/passwd.
fn name_of(id: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(id) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_users_name_is_found_by_its_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\n# a comment\n\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1001, users), None);
        assert_eq!(name_of(1000, ""), None);
    }
}

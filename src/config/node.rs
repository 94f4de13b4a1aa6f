//! `[node]`: the name of this process in logs and tables.

use super::section::Section;
use crate::refund::text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSection {
    /// A name for people, 1 to 100 bytes without blanks. refundd decides nothing by it.
    pub name: String,
}

impl NodeSection {
    pub(super) const KEYS: &'static [&'static str] = &["name"];

    pub(super) fn read(section: &Section<'_>) -> Self {
        section.keys(Self::KEYS, &[]);
        let mut name = section.text("name", &default_name());
        let plain = |name: &str| !name.contains(char::is_whitespace) && !name.contains(text::is_hidden);
        let sound = (1..=100).contains(&name.value.len()) && plain(&name.value);
        name.require(section.source, sound, || "must have 1 to 100 characters, none of them blank");
        NodeSection { name: name.value }
    }
}

/// The host's name and the process's number, so that two processes on one host differ.
fn default_name() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().replace(char::is_whitespace, "-");
    let host: String = host.chars().take(60).collect();
    format!("{host}-{}", std::process::id())
}

//! Reads the keys of one section of the file by type, and complains about each value that does not fit.
//!
//! It walks the parsed document by hand. A derived reader would stop at the first fault and lose the places
//! of the others.

use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::field::{Field, Say};
use super::mask;
use super::source::Source;
use super::value::{as_boolean, as_duration, as_integer, as_permits, as_text, as_texts, kind};

/// One table of the file. If the file does not have it, every key has its default.
pub(super) struct Section<'a> {
    pub(super) source: &'a Source<'a>,
    /// The place in complaints about fields, with the numbers of tables: `channel.acme.verdict#2`.
    path: String,
    /// The place as a header of the file names it: `channel.acme.verdict`.
    header: String,
    /// The number of this table, from 1, if it is one of an array of tables.
    number: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    /// The byte at which it opens in the file; `None` if the file does not have it.
    at: Option<usize>,
}

/// The result of looking up a key.
enum Lookup<T> {
    Absent,
    /// The key has a value that cannot be read; the complaint is made.
    Faulty,
    Value(Field<T>),
}

impl<'a> Section<'a> {
    pub(super) fn root(source: &'a Source<'a>, table: &'a DeTable<'a>) -> Self {
        Section {
            source,
            path: String::new(),
            header: String::new(),
            number: None,
            table: Some(table),
            at: None,
        }
    }

    /// Complains about every key that is not in `known`. A key in `refused` gets the reason that stands beside it.
    pub(super) fn keys(&self, known: &[&str], refused: &[(&str, &str)]) {
        for (key, value) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let kind = if self.path.is_empty() && value.get_ref().is_table() { "section" } else { "field" };
            let subject = format!("{kind} `{}`", self.path_of(name));
            if let Some((_, why)) = refused.iter().find(|(refused, _)| *refused == name) {
                self.source.complain(Some(key.span().start), subject, *why);
                continue;
            }
            let requirement = match nearest(name, known) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None => format!("unknown key; known here: {}", listed(known)),
            };
            self.source.complain(Some(key.span().start), subject, requirement);
        }
    }

    /// The section of that name; empty if the file does not have it.
    pub(super) fn section(&self, name: &str) -> Section<'a> {
        let (path, header) = (self.path_of(name), join(&self.header, name));
        let empty = Section { source: self.source, path, header, number: None, table: None, at: None };
        let Some((key, value)) = self.entry(name) else { return empty };
        if let Some(table) = value.as_table() {
            return Section { table: Some(table), at: Some(key), ..empty };
        }
        let requirement = format!("must be a section, `[{}]`, not {}", empty.header, kind(value));
        self.source.complain(Some(key), format!("field `{}`", empty.path), requirement);
        empty
    }

    /// Whether the file switches the section of that name off, by `"off"` or `false`.
    pub(super) fn is_off(&self, name: &str) -> bool {
        self.entry(name)
            .is_some_and(|(_, value)| value.as_str() == Some("off") || value.as_bool() == Some(false))
    }

    /// The names of all keys that the file has here, known or not.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.table.into_iter().flatten().map(|(key, _)| key.get_ref().as_ref())
    }

    /// Every section under this one, with its name: `[channel.NAME]`.
    pub(super) fn sections(&self) -> Vec<(String, Section<'a>)> {
        let sections = self.names().map(|name| (name.to_owned(), self.section(name)));
        sections.filter(|(_, section)| section.table.is_some()).collect()
    }

    /// Every table of an array of tables: `[[channel.NAME.verdict]]`.
    pub(super) fn tables(&self, name: &str) -> Vec<Section<'a>> {
        let Some((key, value)) = self.entry(name) else { return Vec::new() };
        let (path, header) = (self.path_of(name), join(&self.header, name));
        let items = value.as_array().map(|items| {
            items.iter().map(|item| (item.span().start, item.get_ref().as_table())).collect::<Vec<_>>()
        });
        match items {
            Some(items) if items.iter().all(|(_, table)| table.is_some()) => (1..)
                .zip(items)
                .map(|(number, (at, table))| {
                    let at = if at == 0 { key } else { at };
                    Section {
                        source: self.source,
                        path: format!("{path}#{number}"),
                        header: header.clone(),
                        number: Some(number),
                        table,
                        at: Some(at),
                    }
                })
                .collect(),
            _ => {
                let requirement = format!("must be tables, each opened by `[[{header}]]`");
                self.source.complain(Some(key), format!("field `{path}`"), requirement);
                Vec::new()
            }
        }
    }

    pub(super) fn text(&self, key: &str, default: &str) -> Field<String> {
        self.or_default(key, default.to_owned(), as_text)
    }

    pub(super) fn optional_text(&self, key: &str) -> Option<Field<String>> {
        self.optional(key, as_text)
    }

    /// Whether the key exists, with a value of any kind; for keys that do not belong here.
    pub(super) fn optional_any(&self, key: &str) -> Option<Field<()>> {
        self.optional(key, |_| Ok(()))
    }

    pub(super) fn required_text(&self, key: &str, why: &str) -> Option<Field<String>> {
        self.required(key, why, as_text)
    }

    pub(super) fn duration(&self, key: &str, default: Duration) -> Field<Duration> {
        self.or_default(key, default, as_duration)
    }

    pub(super) fn optional_duration(&self, key: &str) -> Option<Field<Duration>> {
        self.optional(key, as_duration)
    }

    pub(super) fn required_duration(&self, key: &str, why: &str) -> Option<Field<Duration>> {
        self.required(key, why, as_duration)
    }

    pub(super) fn integer(&self, key: &str, default: i64) -> Field<i64> {
        self.or_default(key, default, as_integer)
    }

    pub(super) fn boolean(&self, key: &str, default: bool) -> Field<bool> {
        self.or_default(key, default, as_boolean)
    }

    /// Whether the key lifts a requirement: "refused" is the default, "accepted" lifts it.
    pub(super) fn is_accepted(&self, key: &str) -> bool {
        let mut field = self.text(key, "refused");
        let sound = matches!(field.value.as_str(), "refused" | "accepted");
        field.require(self.source, sound, || "must be \"refused\" or \"accepted\"");
        field.value == "accepted"
    }

    pub(super) fn optional_integer(&self, key: &str) -> Option<Field<i64>> {
        self.optional(key, as_integer)
    }

    pub(super) fn required_integer(&self, key: &str, why: &str) -> Option<Field<i64>> {
        self.required(key, why, as_integer)
    }

    pub(super) fn required_permits(&self, key: &str, why: &str) -> Option<Field<i64>> {
        self.required(key, why, as_permits)
    }

    pub(super) fn required_texts(&self, key: &str, why: &str) -> Option<Field<Vec<String>>> {
        self.required(key, why, as_texts)
    }

    pub(super) fn texts(&self, key: &str, default: &[&str]) -> Field<Vec<String>> {
        self.or_default(key, default.iter().map(|text| (*text).to_owned()).collect(), as_texts)
    }

    /// Complains about the section as a whole, at the place where it opens.
    pub(super) fn complain(&self, requirement: impl Into<String>) {
        let subject = match self.number {
            Some(number) => format!("`[[{}]]` number {number}", self.header),
            None => format!("section `[{}]`", self.header),
        };
        self.source.complain(self.at, subject, requirement);
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    fn or_default<T: Say>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Field<T> {
        match self.find(key, read) {
            Lookup::Absent => Field::default(self.path_of(key), self.at, default),
            Lookup::Faulty => Field::faulty(self.path_of(key), default),
            Lookup::Value(field) => field,
        }
    }

    fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Field<T>> {
        match self.find(key, read) {
            Lookup::Absent | Lookup::Faulty => None,
            Lookup::Value(field) => Some(field),
        }
    }

    fn required<T>(
        &self,
        key: &str,
        why: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Field<T>> {
        match self.find(key, read) {
            Lookup::Absent => {
                let subject = format!("field `{}`", self.path_of(key));
                self.source.complain(self.at, subject, format!("missing; {why}"));
                None
            }
            Lookup::Faulty => None,
            Lookup::Value(field) => Some(field),
        }
    }

    fn find<T>(&self, key: &str, read: impl FnOnce(&DeValue<'_>) -> Result<T, String>) -> Lookup<T> {
        let Some((_, value)) = self.table.and_then(|table| table.get_key_value(key)) else {
            return Lookup::Absent;
        };
        match read(value.get_ref()) {
            Ok(read) => Lookup::Value(Field::given(self.source, self.path_of(key), &value.span(), read)),
            Err(requirement) => {
                let mut field = Field::given(self.source, self.path_of(key), &value.span(), ());
                if mask::is_sensitive(key) {
                    field.shown_as(mask::HIDDEN);
                }
                field.require(self.source, false, || requirement);
                Lookup::Faulty
            }
        }
    }

    fn entry(&self, key: &str) -> Option<(usize, &'a DeValue<'a>)> {
        let (key, value) = self.table?.get_key_value(key)?;
        Some((key.span().start, value.get_ref()))
    }

    fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

/// The path of a key, as TOML writes it: a name with other characters stands in quotes.
fn join(path: &str, key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let key = if key.is_empty() || !key.chars().all(is_bare) { format!("{key:?}") } else { key.to_owned() };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The known name that is most similar to `name`; `None` if none is similar enough for a typing error.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let within = 1 + name.chars().count() / 4;
    let distance = |near: &str| strsim::damerau_levenshtein(&name.to_ascii_lowercase(), near);
    let near = known.iter().map(|near| (distance(near), *near)).min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= within).map(|(_, near)| near)
}

/// The names as a list for a message.
pub(super) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

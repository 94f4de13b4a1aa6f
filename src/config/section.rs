//! A section of the file: typed reading of its keys, with a complaint for whatever does not fit.
//!
//! It walks the parsed document instead of deriving, because a derived reader stops at the first
//! fault and forgets where the others stand.

use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::duration;
use super::field::{Field, Say};
use super::source::Source;

/// One table of the file, or its absence: every key then has its default.
pub(super) struct Section<'a> {
    pub(super) source: &'a Source<'a>,
    path: String,
    table: Option<&'a DeTable<'a>>,
    at: usize,
}

/// What a key was found to hold.
enum Found<T> {
    Absent,
    /// Complained about already.
    Faulty(usize),
    Value(Field<T>),
}

impl<'a> Section<'a> {
    pub(super) fn root(source: &'a Source<'a>, table: &'a DeTable<'a>) -> Self {
        Section { source, path: String::new(), table: Some(table), at: 0 }
    }

    /// Complains about every key that is neither known nor `refused` with a reason of its own.
    pub(super) fn keys(&self, known: &[&str], refused: &[(&str, &str)]) {
        for (key, value) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let kind = if self.path.is_empty() && value.get_ref().is_table() { "section" } else { "field" };
            let subject = format!("{kind} `{}`", self.path_of(name));
            if let Some((_, why)) = refused.iter().find(|(refused, _)| *refused == name) {
                self.source.complain(key.span().start, subject, *why);
                continue;
            }
            let law = match nearest(name, known) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None => format!("unknown key; known here: {}", listed(known)),
            };
            self.source.complain(key.span().start, subject, law);
        }
    }

    /// The section of that name, empty if the file has none.
    pub(super) fn section(&self, name: &str) -> Section<'a> {
        let empty = Section { source: self.source, path: self.path_of(name), table: None, at: self.at };
        let Some((key, value)) = self.entry(name) else { return empty };
        if let Some(table) = value.as_table() {
            Section { table: Some(table), at: key, ..empty }
        } else {
            let subject = format!("field `{}`", empty.path);
            self.source.complain(
                key,
                subject,
                format!("must be a section, `[{}]`, not {}", empty.path, kind(value)),
            );
            empty
        }
    }

    /// Every section under this one, with its name: `[channel.NAME]`.
    pub(super) fn sections(&self) -> Vec<(String, Section<'a>)> {
        let names = self.table.into_iter().flatten().map(|(key, _)| key.get_ref().as_ref());
        names.map(|name| (name.to_owned(), self.section(name))).collect()
    }

    /// Every table of an array of tables: `[[channel.NAME.verdict]]`.
    pub(super) fn tables(&self, name: &str) -> Vec<Section<'a>> {
        let Some((key, value)) = self.entry(name) else { return Vec::new() };
        let path = self.path_of(name);
        let items = value.as_array().map(|items| {
            items.iter().map(|item| (item.span().start, item.get_ref().as_table())).collect::<Vec<_>>()
        });
        match items {
            Some(items) if items.iter().all(|(_, table)| table.is_some()) => (1..)
                .zip(items)
                .map(|(number, (at, table))| {
                    let at = if at == 0 { key } else { at };
                    Section { source: self.source, path: format!("{path}#{number}"), table, at }
                })
                .collect(),
            _ => {
                let law = format!("must be tables, each opened by `[[{path}]]`");
                self.source.complain(key, format!("field `{path}`"), law);
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

    pub(super) fn required_text(&self, key: &str, why: &str) -> Option<Field<String>> {
        self.required(key, why, as_text)
    }

    pub(super) fn duration(&self, key: &str, default: Duration) -> Field<Duration> {
        self.or_default(key, default, as_duration)
    }

    pub(super) fn required_duration(&self, key: &str, why: &str) -> Option<Field<Duration>> {
        self.required(key, why, as_duration)
    }

    pub(super) fn integer(&self, key: &str, default: i64) -> Field<i64> {
        self.or_default(key, default, as_integer)
    }

    pub(super) fn optional_integer(&self, key: &str) -> Option<Field<i64>> {
        self.optional(key, as_integer)
    }

    pub(super) fn required_integer(&self, key: &str, why: &str) -> Option<Field<i64>> {
        self.required(key, why, as_integer)
    }

    pub(super) fn required_texts(&self, key: &str, why: &str) -> Option<Field<Vec<String>>> {
        self.required(key, why, as_texts)
    }

    /// Complains about the section as a whole, where it opens.
    pub(super) fn complain(&self, law: impl Into<String>) {
        self.source.complain(self.at, format!("section `[{}]`", self.path), law);
    }

    fn or_default<T: Say>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Field<T> {
        match self.find(key, read) {
            Found::Absent => Field::default(self.path_of(key), self.at, default),
            Found::Faulty(at) => Field::faulty(self.path_of(key), at, default),
            Found::Value(field) => field,
        }
    }

    fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Field<T>> {
        match self.find(key, read) {
            Found::Absent | Found::Faulty(_) => None,
            Found::Value(field) => Some(field),
        }
    }

    fn required<T>(
        &self,
        key: &str,
        why: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Field<T>> {
        match self.find(key, read) {
            Found::Absent => {
                let subject = format!("field `{}`", self.path_of(key));
                self.source.complain(self.at, subject, format!("is missing; {why}"));
                None
            }
            Found::Faulty(_) => None,
            Found::Value(field) => Some(field),
        }
    }

    fn find<T>(&self, key: &str, read: impl FnOnce(&DeValue<'_>) -> Result<T, String>) -> Found<T> {
        let Some((_, value)) = self.table.and_then(|table| table.get_key_value(key)) else {
            return Found::Absent;
        };
        match read(value.get_ref()) {
            Ok(read) => Found::Value(Field::given(self.source, self.path_of(key), &value.span(), read)),
            Err(law) => {
                let mut field = Field::given(self.source, self.path_of(key), &value.span(), ());
                field.law(self.source, false, || law);
                Found::Faulty(value.span().start)
            }
        }
    }

    fn entry(&self, key: &str) -> Option<(usize, &'a DeValue<'a>)> {
        let (key, value) = self.table?.get_key_value(key)?;
        Some((key.span().start, value.get_ref()))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// The known name that someone most likely meant.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let within = 1 + name.chars().count() / 4;
    let distance = |near: &str| strsim::damerau_levenshtein(&name.to_ascii_lowercase(), near);
    let near = known.iter().map(|near| (distance(near), *near)).min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= within).map(|(_, near)| near)
}

/// The names as a list for people.
pub(super) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn as_text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("must be text in quotes, not {}", kind(value)))
}

fn as_integer(value: &DeValue<'_>) -> Result<i64, String> {
    let integer = value.as_integer().ok_or_else(|| format!("must be a whole number, not {}", kind(value)))?;
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| "is a larger number than can be counted".to_owned())
}

fn as_duration(value: &DeValue<'_>) -> Result<Duration, String> {
    match (value.as_str(), value.as_integer()) {
        (Some(text), _) => duration::read(text),
        (None, Some(number)) => duration::read(number.as_str()),
        (None, None) => Err(format!("must be a duration in quotes, such as \"10s\", not {}", kind(value))),
    }
}

fn as_texts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let wrong = || format!("must be a list of names, such as [\"acme\"], not {}", kind(value));
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.get_ref().as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

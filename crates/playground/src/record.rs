//! Writes what was measured as JSON that a person can read and compare: one row on one line.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

/// The longest value that stands on one line, in bytes.
const LINE: usize = 400;

/// Writes `record` to `file`, with sorted keys. A value that is too long for a line has a line for each member.
pub fn write(file: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    let value = serde_json::to_value(record).context("failed to write the record as JSON")?;
    let text = lines(&value, "\n") + "\n";
    std::fs::write(file, text).with_context(|| format!("failed to write {}", file.display()))
}

/// The JSON of `value`. `before` is the line break with the indentation of the line that `value` stands on.
fn lines(value: &Value, before: &str) -> String {
    let short = value.to_string();
    if short.len() <= LINE {
        return short;
    }
    let indented = format!("{before}  ");
    let broken = |open: char, members: Vec<String>, close: char| {
        format!("{open}{indented}{}{before}{close}", members.join(&format!(",{indented}")))
    };
    match value {
        Value::Array(members) => {
            broken('[', members.iter().map(|member| lines(member, &indented)).collect(), ']')
        }
        Value::Object(members) => {
            let pair = |(key, member): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), lines(member, &indented))
            };
            broken('{', members.iter().map(pair).collect(), '}')
        }
        _ => short,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_and_has_a_line_for_each_row() {
        let rows: Vec<Value> = (0..40).map(|row| json!({ "row \"": row, "text": "a\nb" })).collect();
        let record = json!({ "rows": rows, "cores": 2, "none": null, "long": "x".repeat(LINE) });
        let text = lines(&record, "\n");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), record);
        assert_eq!(text.lines().count(), 2 + 3 + 2 + 40, "{text}");
    }
}

//! Checks the first line of a CSV file, which names the columns.

use anyhow::{Context, bail};
use csv::{ErrorKind, StringRecord};

use crate::refund::draft::FIELDS;
use crate::refund::text::shown;

const NOT_UTF8: &str = "line 1: is not UTF-8: save it as CSV UTF-8";

/// The columns that the first line names.
pub(super) fn columns(first: csv::Result<StringRecord>) -> anyhow::Result<StringRecord> {
    let columns = match first {
        Err(error) if matches!(error.kind(), ErrorKind::Utf8 { .. }) => bail!(NOT_UTF8),
        first => first.context("line 1")?,
    };
    for (nth, column) in columns.iter().enumerate() {
        if !FIELDS.contains(&column) {
            // UTF-16 without a byte order mark.
            if column.contains('\0') {
                bail!(NOT_UTF8);
            }
            if column.contains(';') {
                bail!("line 1: the cells are separated by `;`; separate them by commas");
            }
            bail!(
                "line 1: `{}` is no field of a refund; the first line names columns out of {}",
                shown(column),
                FIELDS.join(", ")
            );
        }
        if columns.iter().take(nth).any(|other| other == column) {
            bail!("line 1: the column `{column}` is there twice");
        }
    }
    Ok(columns)
}

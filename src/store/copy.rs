//! Saves many new refunds by `COPY`. That is half the work of [`Store::save`], because it checks no refund by itself.
//!
//! It does not say which refund stands in the way. Then the caller calls `save`, which saves the refunds or says why
//! not.

use std::fmt::Write;

use super::connections::Ask;
use super::{Doing, Store, StoreError};
use crate::refund::NewRefund;

/// For refunds without `due_at`: they are due when they are saved.
const COPY: &str = "copy refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload, deadline_at) from stdin";
const COPY_DUE: &str = "copy refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload, deadline_at, due_at) from stdin";

/// Whether one of the channels takes no refunds, by the rules of `save`.
const CLOSED: &str = "
    select exists (select from refundd.channels c
                    where c.channel = any($1) and (c.retired_at is not null or c.full_since is not null))";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("closed", CLOSED)];

impl Store {
    /// Saves refunds in one commit, all or none; answers whether they are saved. It saves none if one of them was
    /// saved before, or names a channel that takes no refunds. Nor does it if only some of them have a `due_at`.
    pub async fn copy(&self, refunds: &[NewRefund]) -> Result<bool, StoreError> {
        let statement = match refunds.iter().filter(|refund| refund.due_at.is_some()).count() {
            0 => COPY,
            due if due == refunds.len() => COPY_DUE,
            _ => return Ok(false),
        };
        let mut channels: Vec<&str> = refunds.iter().map(|refund| refund.channel.as_str()).collect();
        channels.sort_unstable();
        channels.dedup();
        let db = self.db.patient();
        let closed: Result<bool, _> = sqlx::query_scalar(CLOSED).bind(&channels).one(&db).await;
        if closed.doing("ask whether channels take refunds")? {
            return Ok(false);
        }
        match db.copy(statement, lines(refunds).into_bytes()).await {
            Ok(_) => Ok(true),
            // Postgres refuses one of the refunds, or another transaction is saving it.
            Err(sqlx::Error::Database(_)) => Ok(false),
            Err(error) => Err(error).doing("copy refunds"),
        }
    }
}

/// The refunds in the text format of `COPY`, one in each line.
fn lines(refunds: &[NewRefund]) -> String {
    let mut lines = String::with_capacity(refunds.len() * 96);
    for refund in refunds {
        for cell in [refund.refund_ref.as_str(), refund.channel.as_str(), refund.payment_ref.as_str()] {
            escape(cell, &mut lines);
            lines.push('\t');
        }
        let _ = write!(lines, "{}\t{}\t", refund.money.amount_minor, refund.money.currency);
        match &refund.payload {
            Some(payload) => escape(payload.as_str(), &mut lines),
            None => lines.push_str("\\N"),
        }
        lines.push('\t');
        match refund.deadline_at {
            Some(at) => _ = write!(lines, "{at}"),
            None => lines.push_str("\\N"),
        }
        if let Some(at) = refund.due_at {
            let _ = write!(lines, "\t{at}");
        }
        lines.push('\n');
    }
    lines
}

/// Appends a cell with the special characters of the format escaped.
fn escape(cell: &str, to: &mut String) {
    for character in cell.chars() {
        match character {
            '\\' => to.push_str("\\\\"),
            '\t' => to.push_str("\\t"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            plain => to.push(plain),
        }
    }
}

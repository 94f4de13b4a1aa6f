//! Foresees what a save would do, and saves nothing: for the dry run of an import, and for its check before it saves.

use std::collections::HashMap;

use sqlx::Row;

use super::connections::Ask;
use super::save::{SaveResult, Saved, above_bound};
use super::{Doing, Store, StoreError};
use crate::refund::NewRefund;

/// The channels that take refunds, with the bound of those whose backlog is full, the bounds of amounts, and whether they
/// accept card numbers.
const TAKERS: &str = "
    select channel, case when full_since is not null then coalesce(max_backlog, 0) end as max_backlog,
           (settings -> 'max_amount_minor')::text as bounds, settings ->> 'card_numbers' is not distinct from 'accepted' as accepts_cards
      from refundd.channels where channel = any($1) and retired_at is null";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("takers", TAKERS)];

impl Store {
    /// What [`Store::save`] would do now with each of these refunds, if it were alone. The results have their order. A channel is
    /// full if a node has marked it so: the caller counts what these refunds themselves add to its backlog.
    pub async fn foresee(&self, refunds: &[NewRefund]) -> Result<Vec<SaveResult>, StoreError> {
        let db = self.db.patient();
        let channels: Vec<&str> = refunds.iter().map(|refund| refund.channel.as_str()).collect();
        let rows =
            sqlx::query(TAKERS).bind(&channels).all(&db).await.doing("ask which channels take refunds")?;
        let takers: HashMap<&str, (Option<i64>, Option<&str>, bool)> = rows
            .iter()
            .map(|row| {
                (row.get("channel"), (row.get("max_backlog"), row.get("bounds"), row.get("accepts_cards")))
            })
            .collect();
        let foreseen = refunds.iter().map(|refund| match takers.get(refund.channel.as_str()) {
            None => SaveResult::NoSuchChannel,
            Some((max_backlog, bounds, accepts_cards)) => {
                let cards = refund.card_fields();
                match (above_bound(*bounds, &refund.money), max_backlog) {
                    (Some(why), _) => SaveResult::AboveBound(why),
                    _ if !accepts_cards && !cards.is_none() => SaveResult::CardNumbers(cards),
                    (None, None) => SaveResult::New,
                    (None, Some(max_backlog)) => SaveResult::Full { max_backlog: *max_backlog },
                }
            }
        });
        let mut results: Vec<SaveResult> = foreseen.collect();
        let numbered: Vec<(i64, &NewRefund)> = (1..).zip(refunds).collect();
        for (nth, saved) in self.compare(&db, &numbered).await? {
            results[nth] = Saved::result(&saved);
        }
        Ok(results)
    }
}

//! Lists what can be proven: the channels with the limits of their newest settings, and every limit.

use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::store::connections::Ask;
use crate::store::{Doing, Store, StoreError};

/// The channels and limits that can be proven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provable {
    /// Each channel with the limits that its newest settings name for its sends.
    pub channels: Vec<(String, Vec<String>)>,
    /// Each channel that makes inquiries, with the limits of these: their own, or those of the sends.
    pub inquiries: Vec<(String, Vec<String>)>,
    /// The limits that nodes count by shares, as the newest settings of some channel say.
    pub local_shares: Vec<String>,
    /// Every limit that ever had a rule or a permit, or that a channel names. The shares of limits are among them.
    pub limits: Vec<String>,
}

pub(super) const CHANNELS: &str = "
    select channel, (settings -> 'limits')::text as limits, (settings -> 'inquiry')::text as inquiry
      from refundd.channels order by channel";

pub(super) const RULED: &str = "select distinct limit_name from refundd.limit_rules order by limit_name";

impl Store {
    /// All channels and limits that can be proven.
    pub async fn provable(&self) -> Result<Provable, StoreError> {
        let rows = sqlx::query(CHANNELS).all(&self.db.patient()).await.doing("list the channels")?;
        let mut known = Provable::default();
        for row in &rows {
            let (channel, limits, inquiry) =
                (row.get::<String, _>("channel"), setting(row, "limits"), setting(row, "inquiry"));
            if inquiry.is_object() {
                let own = Some(&inquiry["limits"]).filter(|own| own.is_array());
                known.inquiries.push((channel.clone(), names(own.unwrap_or(&limits), |_| true)));
            }
            let is_shared_out = |limit: &Value| limit["placement"] == "local_share";
            known.local_shares.extend(names(&limits, is_shared_out));
            known.local_shares.extend(names(&inquiry["limits"], is_shared_out));
            known.channels.push((channel, names(&limits, |_| true)));
        }
        known.local_shares.sort_unstable();
        known.local_shares.dedup();
        let ruled: Vec<String> = sqlx::query_scalar(RULED)
            .all(&self.db.patient())
            .await
            .doing("list the limits that had rules")?;
        let spent = self.limits_with_permits().await?.into_iter().map(String::from);
        let named = known.channels.iter().chain(&known.inquiries).flat_map(|(_, limits)| limits.clone());
        known.limits = ruled.into_iter().chain(spent).chain(named).collect();
        known.limits.sort_unstable();
        known.limits.dedup();
        Ok(known)
    }
}

/// A part of a channel's published settings.
fn setting(row: &PgRow, part: &str) -> Value {
    let text: Option<&str> = row.get(part);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The names of those limits in a list of a channel's settings for which `is_meant` is true.
fn names(limits: &Value, is_meant: impl Fn(&Value) -> bool) -> Vec<String> {
    let limits = limits.as_array().into_iter().flatten().filter(|limit| is_meant(limit));
    limits.filter_map(|limit| Some(limit["name"].as_str()?.to_owned())).collect()
}

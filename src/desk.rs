//! The operator's desk: what the commands, the HTTP interface and pages show of channels and refunds. All of them show
//! the same values, made here once.
//!
//! It reads and changes nothing. It does not write pages or tables.

pub mod change;
pub mod channel;
pub mod comparison;
pub mod forecasts;
pub mod fresh;
mod inputs;
pub mod plan;
pub mod story;

use crate::store::{ChannelCensus, Store, StoreError};
use forecasts::{Measured, Prospects};

/// The census of all channels, each with the forecast when its backlog is gone.
pub async fn census(store: &Store, measured: &Measured) -> Result<Vec<ChannelCensus>, StoreError> {
    let mut census = store.census().await?;
    let prospects = Prospects::read(store, &census, measured).await?;
    let ends = prospects.ends();
    for channel in &mut census {
        // A forecast of what would be if the bank accepted from now on helps nobody while it refuses everything.
        let is_known = channel.nothing_accepted.is_none();
        channel.drain = ends.get(&channel.channel).copied().flatten().filter(|_| is_known);
    }
    Ok(census)
}

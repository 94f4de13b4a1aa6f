//! Compares what becomes of the present backlog under what nodes run now, and under another configuration.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use super::channel::NothingAcceptedStatus;
use super::forecasts::{Departures, Measured, Prospects};
use super::inputs::ForecastInputs;
use super::plan::PlannedConfig;
use crate::refund::State;
use crate::store::{ChannelCensus, Store, StoreError};

/// What becomes of the refunds that wait in one channel.
#[derive(Debug, PartialEq, Serialize)]
pub struct BacklogComparison {
    pub channel: String,
    /// Refunds that are ready, due or not.
    pub waiting: u64,
    pub before: BacklogForecast,
    pub after: BacklogForecast,
    /// That the bank refuses everything now. Both forecasts suppose that it accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_accepted: Option<NothingAcceptedStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BacklogForecast {
    /// Whether there is a forecast: not if the rule of a limit is not known, or if the channel is unlimited and nobody measured
    /// its bank.
    pub is_known: bool,
    /// Rounded up, as in the channel's status; `None` if nothing is sent until a person acts, or without a forecast.
    pub expected_seconds_to_drain: Option<u64>,
    /// How many of the first 200,000 refunds will miss their deadlines; `None` without a forecast.
    pub late: Option<u64>,
}

impl BacklogForecast {
    fn of(departures: Option<&Departures>, deadlines: &[(u64, f64)]) -> Self {
        let whole = |span: Duration| span.as_secs() + u64::from(span.subsec_nanos() > 0);
        BacklogForecast {
            is_known: departures.is_some(),
            expected_seconds_to_drain: departures.and_then(Departures::end).map(whole),
            late: departures.map(|departures| departures.late(deadlines)),
        }
    }

    /// Whether more refunds will be late than in the other forecast. Of one that is not known, none count as late.
    pub fn is_later_than(&self, other: &BacklogForecast) -> bool {
        self.late.is_some_and(|own| own > other.late.unwrap_or(0))
    }
}

/// Compares the forecasts of each backlog, by channel.
pub async fn compare(
    store: &Store,
    census: &[ChannelCensus],
    measured: &Measured,
    plan: &PlannedConfig,
) -> Result<Vec<BacklogComparison>, StoreError> {
    // Read once, so that a file that changes nothing makes nothing late.
    let mut inputs = ForecastInputs::read(store, census).await?;
    let now = Prospects::of(store, &mut inputs, measured, None).await?.departures();
    let then = Prospects::of(store, &mut inputs, measured, Some(plan)).await?.departures();
    let mut comparisons = Vec::new();
    for channel in census {
        let waiting = channel.counts.get(&State::Ready).copied().unwrap_or(0);
        if waiting == 0 {
            continue;
        }
        let deadlines = store.deadlines(&channel.channel).await?;
        let of = |all: &HashMap<String, Option<Departures>>| {
            BacklogForecast::of(all.get(&channel.channel).and_then(Option::as_ref), &deadlines)
        };
        let (before, after) = (of(&now), of(&then));
        comparisons.push(BacklogComparison {
            channel: channel.channel.clone(),
            waiting,
            before,
            after,
            nothing_accepted: channel.nothing_accepted.as_ref().map(NothingAcceptedStatus::from),
        });
    }
    Ok(comparisons)
}

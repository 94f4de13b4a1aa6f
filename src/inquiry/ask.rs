//! One inquiry under its lease: wait for the permit's span, ask, and write down what it proves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Leave, Reserved, Told};
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::node::holding::Word;
use crate::node::{Node, jittered};
use crate::refund::attempt::taken_reference;
use crate::refund::inquiry::{Asked, Finding, Found, Resolution, Trust};
use crate::refund::{Code, State};
use crate::store::Inquired;
use crate::telemetry::chain;

/// One question to the bank, from lease to evidence.
#[derive(Debug)]
pub(super) struct Ask {
    pub node: Node,
    pub channel: Arc<Channel>,
    pub trust: Trust,
    pub bank: Arc<Bank>,
    /// The channel's inquirer ends: what was not begun is handed back.
    pub stop: CancellationToken,
    pub asked: Asked,
    pub permit: Permit,
    pub leased_at: Instant,
    /// No first byte after this, so that the lease outlives the call.
    pub leash: Instant,
}

impl Ask {
    /// Never cut off halfway: it is spawned and runs to its end.
    pub async fn run(self, slot: Option<OwnedSemaphorePermit>, connection: Option<Reserved>) {
        let Told { found, started } = self.wait_and_ask(connection).await;
        crash::point("told");
        let resolution = self.resolve(&found);
        let word = match found.finding {
            Finding::AskedToWait { retry_after } => {
                let named = retry_after.map(|wait| wait.max(Duration::from_secs(1)));
                Some(Word::Wait { named, age: started.map_or(Duration::ZERO, |at| at.elapsed()) })
            }
            Finding::Unauthorised => Some(Word::NotLetIn),
            _ => None,
        };
        // The slot stays taken until the channel is held back, so that nobody slips through meanwhile.
        if let Some(word) = word {
            self.node.hold_back(&self.channel, word, &found.message).await;
        }
        drop(slot);
        self.node.metrics.inquiry(&self.channel.name, found.finding.as_str());
        if found.code == Code::Unmapped {
            self.node.metrics.unmapped_answer(&self.channel.name, found.status);
        }
        self.settle(found, started, resolution).await;
    }

    fn resolve(&self, found: &Found) -> Resolution {
        Resolution::of(
            &found.finding,
            &self.asked,
            self.leased_at.elapsed(),
            self.trust,
            &self.channel.retry,
            self.channel.cool_down,
            fastrand::f64(),
        )
    }

    async fn wait_and_ask(&self, connection: Option<Reserved>) -> Told {
        if let Some(span) = self.permit.span {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep_until(span.opens.into()) => {}
            }
        }
        let told = if self.stop.is_cancelled() {
            let message = "the node stops, or the channel's settings changed, before the first byte";
            Told { found: Found::new(Finding::HandedBack, Code::Stopping, message), started: None }
        } else {
            let closes = self.permit.span.map_or(self.leash, |span| span.closes.min(self.leash));
            let (leave, was_late) = Leave::until(closes);
            let (told, ()) = tokio::join!(
                self.bank.inquire(&self.asked, leave, connection),
                self.node.watch_leaving(&self.channel, &self.permit, was_late),
            );
            told
        };
        if told.started.is_none() && self.permit.span.is_some() {
            self.node.metrics.permits_unused(&self.channel.name, told.found.code.as_str(), 1);
        }
        told
    }

    /// Writes it down, and tries again while Postgres is away, as long as the lease lasts: after that the
    /// bank is asked again anyway.
    async fn settle(&self, found: Found, started: Option<Instant>, resolution: Resolution) {
        let mut inquired = Inquired {
            asked: self.asked.clone(),
            channel: self.channel.name.clone(),
            started,
            permit: self.permit.describe(),
            found,
            resolution,
        };
        let id = self.asked.id;
        loop {
            match self.node.store.settle_inquiry(&self.node.name, &inquired).await {
                Ok(moved) => {
                    crash::point("resolved");
                    return report(&inquired, moved);
                }
                Err(error) if error.is_taken_reference() => self.show(&mut inquired).await,
                Err(error) if error.is_about_the_row() => {
                    tracing::error!(refund.id = %id, error = %chain(&error), "Postgres refuses what the bank said of refund {id}; it is asked again");
                    return;
                }
                Err(error) => {
                    if self.leased_at.elapsed() > self.channel.lease || self.node.stop.is_cancelled() {
                        tracing::warn!(refund.id = %id, error = %chain(&error), "Failed to write down what the bank said of refund {id}; it is asked again");
                        return;
                    }
                    tokio::time::sleep(jittered(Duration::from_millis(300))).await;
                }
            }
        }
    }

    /// The bank's reference belongs to another refund: a person has to look.
    async fn show(&self, inquired: &mut Inquired) {
        let reference = inquired.found.bank_ref.take().unwrap_or_default();
        let holder = self.node.store.bank_ref_holder(&self.channel.name, &reference).await.ok().flatten();
        let message = taken_reference(holder, &inquired.found.message);
        let status = inquired.found.status;
        inquired.found = Found { status, ..Found::new(Finding::Review, Code::BankRefTaken, &message) };
        inquired.resolution = self.resolve(&inquired.found);
    }
}

fn report(inquired: &Inquired, moved: bool) {
    let Inquired { asked, channel, found, resolution, .. } = inquired;
    let (id, number, outcome) = (asked.id, asked.number, found.finding.as_str());
    if !moved {
        tracing::warn!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome,
            "What the bank said of refund {id} came too late; it is kept as evidence and moves nothing",
        );
    } else if resolution.next == State::Review {
        tracing::warn!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = found.code.as_str(),
            "Refund {id} waits for a person after inquiry {number} on channel `{channel}`: {}", found.message,
        );
    } else if resolution.next == asked.state {
        tracing::info!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = found.code.as_str(),
            next_ms = resolution.inquire_in.unwrap_or_default().as_millis(),
            "Refund {id} is still {} after inquiry {number} on channel `{channel}`: {}", asked.state, found.message,
        );
    } else {
        tracing::info!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = found.code.as_str(),
            "Refund {id} is {} after inquiry {number} on channel `{channel}`", resolution.next,
        );
    }
}

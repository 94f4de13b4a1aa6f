//! One node, as its loops go: the same calls in the same order as `dispatcher.rs`, `dispatcher/send.rs`,
//! `bank.rs`, `settler.rs`, `feeder.rs`, `recovery.rs` and `node/reminding.rs` make them, cut into steps
//! wherever the real loop awaits something.
//!
//! Statements, scripts, verdicts, settlements and the translation of permits are the product's own; what
//! stands here is only the order. Whoever changes that order in a loop changes it here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use refundd::bank::verdict::verdict;
use refundd::bucket::{Bucket, End, Order, Take};
use refundd::channel::Channel;
use refundd::limiter::{Forgotten, Limit, Permit, PermitNumber, Told};
use refundd::refund::{Answer, ChannelName, Leased, Outcome, RefundId, Sending, Settlement, State};
use refundd::store::{Asked, Settled};

use super::bank::{Call, Course, Seen};
use super::clock::micros;
use super::laws::{Lawful, taken};
use super::plan::Plan;
use super::redis::Link;
use super::stage::Stage;
use super::world::{CAPACITY, Ghost, TOLERANCE, World, note};
use super::zoo::Mistake;

/// What a dispatcher has to do before it takes again.
#[derive(Debug)]
pub enum Errand {
    Adopt(Forgotten),
    Remind(Arc<Limit>, Told),
    CatchUp(Arc<Limit>, Permit),
    Forget(Arc<Limit>, i64),
}

/// What a channel's line gave, each under its permit.
type Taken = (Arc<Channel>, Vec<(RefundId, Permit)>);

/// One channel's dispatcher.
#[derive(Debug, Default)]
pub struct Lane {
    pub not_before: i64,
    pub taken: Option<Taken>,
    pub errands: VecDeque<Errand>,
    wasted: bool,
}

/// A refund under lease that waits for its span.
#[derive(Debug)]
pub struct Send {
    pub channel: Arc<Channel>,
    pub lane: usize,
    pub refund: Leased,
    pub permit: Permit,
    pub leash: std::time::Instant,
}

/// A call under way, or over and not yet judged.
#[derive(Debug)]
pub struct Flight {
    pub send: Send,
    /// Its place in the bank's ledger.
    pub call: usize,
}

#[derive(Debug)]
pub struct Back {
    pub ids: Vec<RefundId>,
    pub holder: String,
    pub next: i64,
    pub until: i64,
}

/// Rows that were read and are to be put in line.
#[derive(Debug)]
pub struct Food {
    pub channel: ChannelName,
    pub ids: Vec<RefundId>,
    pub end: End,
}

#[derive(Debug)]
pub struct Node {
    pub process: u32,
    pub alive: bool,
    pub file: usize,
    pub name: String,
    claims: u64,
    pub link: Arc<Link>,
    pub bucket: Bucket,
    pub lanes: Vec<Lane>,
    pub sends: Vec<Send>,
    pub flights: Vec<Flight>,
    pub outbox: Vec<Settled>,
    /// A batch whose commit was not seen.
    pub again: Vec<Settled>,
    pub backs: Vec<Back>,
    pub food: Vec<Food>,
    pub hungry: BTreeSet<usize>,
    /// Until when a channel is held back, as this node heard; `None` is until somebody resumes it.
    pub held: BTreeMap<usize, Option<i64>>,
}

impl Node {
    const TRY_AGAIN: i64 = 500_000;
    const ASK_AGAIN: i64 = 30_000_000;

    pub fn new(
        stage: &Stage,
        plan: &Plan,
        nth: usize,
        process: u32,
        file: usize,
        mistake: Option<Mistake>,
    ) -> Self {
        let skew = match mistake {
            Some(Mistake::NodesClock) => [0, 300_000, -400_000][nth],
            _ => 0,
        };
        let link = Arc::new(Link::new(&stage.redis, nth % 2 == 1, skew));
        let stand_in: Arc<dyn refundd::bucket::StandIn> = Arc::<Link>::clone(&link);
        Node {
            process,
            alive: true,
            file,
            name: format!("node-{nth}#{process}"),
            claims: 0,
            link,
            bucket: Bucket::stood_in(stand_in, TOLERANCE).unwrap(),
            lanes: plan.files[0].iter().map(|_| Lane::default()).collect(),
            sends: Vec::new(),
            flights: Vec::new(),
            outbox: Vec::new(),
            again: Vec::new(),
            backs: Vec::new(),
            food: Vec::new(),
            hungry: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }

    pub fn may_take(&self, lane: usize, now: i64) -> bool {
        let held = match self.held.get(&lane) {
            None => false,
            Some(None) => true,
            Some(Some(until)) => *until > now,
        };
        self.lanes[lane].taken.is_none() && self.lanes[lane].errands.is_empty() && !held
    }

    pub fn slots(&self, lane: usize, channel: &Channel) -> u32 {
        let busy = self.sends.iter().filter(|send| send.lane == lane).count()
            + self.flights.iter().filter(|flight| flight.send.lane == lane).count();
        channel.max_in_flight.saturating_sub(u32::try_from(busy).unwrap_or(u32::MAX))
    }
}

fn named(numbers: &[PermitNumber]) -> String {
    let each =
        |n: &PermitNumber| format!("{}@{}#{} g{}", n.limit, n.window_start_us, n.ordinal, n.generation);
    numbers.iter().map(each).collect::<Vec<_>>().join(" ")
}

impl World<'_> {
    fn channel(&self, n: usize, lane: usize) -> Arc<Channel> {
        Arc::clone(&self.plan.files[self.nodes[n].file][lane])
    }

    /// `Dispatcher::round`, up to the claim.
    pub async fn take(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let (now, channel) = (self.now(), self.channel(n, lane));
        let slots = self.nodes[n].slots(lane, &channel);
        if !self.nodes[n].may_take(lane, now) || slots == 0 {
            return Ok(false);
        }
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        if self.nodes[n].lanes[lane].wasted {
            if bucket.forget_long_windows(&channel.limits).await.is_err() {
                self.stumble(n, lane, "forget");
                return Ok(true);
            }
            self.nodes[n].lanes[lane].wasted = false;
        }
        let haste = Duration::from_micros(self.plan.slow.unsigned_abs() * 2 + 500);
        let order = Order { want: self.rng.u32(1..=slots), low_water: CAPACITY / 2, haste };
        let took = bucket.take(&channel, order).await;
        let now = self.now();
        let lane_of = &mut self.nodes[n].lanes[lane];
        match took {
            Ok(Take::Granted { taken, feed, again, .. }) => {
                lane_of.not_before = again.map_or(now, |again| now + micros(again.span));
                note!(
                    self,
                    "node {n} takes {} of c{lane}: {}",
                    taken.len(),
                    taken
                        .iter()
                        .map(|(id, p)| format!("{id} ({})", named(&p.numbers)))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                self.nodes[n].lanes[lane].taken = Some((channel, taken));
                if feed {
                    self.nodes[n].hungry.insert(lane);
                }
            }
            Ok(Take::Denied { wait, .. }) => {
                lane_of.not_before = now + micros(wait.span).clamp(1_000, Node::ASK_AGAIN);
                note!(self, "node {n} is told to wait {:?} by {}", wait.span, wait.limit);
            }
            Ok(Take::Empty) => {
                // It sleeps until the line is fed, which its scout sees within a second.
                lane_of.not_before = now + 1_000_000;
                self.nodes[n].hungry.insert(lane);
                note!(self, "node {n} finds the line of c{lane} empty");
            }
            Ok(Take::Forgot(forgotten)) => {
                note!(self, "node {n} hears that Redis forgot {}", forgotten.limit.name);
                self.nodes[n].lanes[lane].errands.push_back(Errand::Adopt(forgotten));
            }
            Ok(Take::ClockStepped { by_us }) => {
                lane_of.wasted = true;
                note!(self, "node {n} notices that Redis's clock was set by {by_us} us");
            }
            Err(_) => {
                lane_of.wasted = true;
                self.stumble(n, lane, "take");
            }
        }
        Ok(true)
    }

    fn stumble(&mut self, n: usize, lane: usize, what: &str) {
        let now = self.now();
        let lane_of = &mut self.nodes[n].lanes[lane];
        lane_of.not_before = now + Node::TRY_AGAIN;
        lane_of.errands.clear();
        note!(self, "node {n} fails to {what} on c{lane}");
    }

    /// `Node::remind` and `Node::catch_up`, one await at a time.
    pub async fn errand(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let Some(errand) = self.nodes[n].lanes[lane].errands.pop_front() else { return Ok(false) };
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let (bucket, store) = (self.nodes[n].bucket.clone(), self.stage.store.clone());
        let name = self.nodes[n].name.clone();
        match errand {
            Errand::Adopt(forgotten) => {
                self.travel();
                if self.troubled() {
                    self.stumble(n, lane, "adopt");
                    return Ok(true);
                }
                self.stage.tell_time().await;
                let told = taken(store.adopt(&forgotten, &name, TOLERANCE).await)?;
                note!(self, "node {n} asks the ledger about {}: {told:?}", forgotten.limit.name);
                if self.troubled() {
                    self.stumble(n, lane, "hear what was adopted");
                    return Ok(true);
                }
                let remind = Errand::Remind(Arc::clone(&forgotten.limit), told);
                self.nodes[n].lanes[lane].errands.push_front(remind);
            }
            Errand::Remind(limit, told) => {
                if bucket.remind(&limit, &told).await.is_err() {
                    self.stumble(n, lane, "remind");
                } else {
                    note!(self, "node {n} tells Redis about {}", limit.name);
                }
            }
            Errand::CatchUp(limit, permit) => {
                let Some(number) = permit.numbers.iter().rfind(|number| number.limit == limit.name) else {
                    return Ok(true);
                };
                self.travel();
                if self.troubled() {
                    self.stumble(n, lane, "catch up");
                    return Ok(true);
                }
                self.stage.tell_time().await;
                let generation = taken(store.generation(&limit.name).await)?;
                let next = if generation != number.generation {
                    Errand::Forget(limit, generation.max(number.generation.saturating_add(1)))
                } else if limit.rule.algorithm.is_numbered() {
                    let window = (number.window_start_us, number.window_start_us + 1);
                    let told =
                        taken(store.recollect(&limit, number.window_start_us, window, TOLERANCE).await)?;
                    Errand::Remind(limit, told)
                } else {
                    return Ok(true);
                };
                note!(self, "node {n} catches up: {next:?}");
                self.nodes[n].lanes[lane].errands.push_front(next);
            }
            Errand::Forget(limit, generation) => {
                if bucket.forget(&limit, generation).await.is_err() {
                    self.stumble(n, lane, "make Redis forget");
                }
            }
        }
        Ok(true)
    }

    /// `Dispatcher::claim_and_send`.
    pub async fn claim(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let Some((channel, granted)) = self.nodes[n].lanes[lane].taken.take() else { return Ok(false) };
        let asked_at = self.stage.clock.instant();
        let ahead = channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default();
        let tolerance = TOLERANCE + ahead + Bucket::MOST_HASTE;
        let node = &mut self.nodes[n];
        let holder = format!("{}/{}", node.name, node.claims);
        node.claims += 1;
        let name = node.name.clone();
        if self.is(Mistake::SendBeforeTheClaim) {
            self.lease_blindly(n, lane, &channel, &granted, asked_at);
        }
        self.travel();
        let (lost, late) = (self.troubled(), self.rng.bool());
        let ran = !lost || self.rng.bool();
        let mut claimed = None;
        if ran {
            let asked = Asked {
                channel: &channel.name,
                node: &name,
                holder: &holder,
                lease: channel.lease,
                clock_tolerance: tolerance,
                taken: &granted,
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
            };
            self.stage.tell_time().await;
            claimed = Some(taken(self.stage.store.claim(&asked).await)?);
            self.observe().await?;
            self.travel();
        } else if late {
            let taken = granted.clone();
            self.ghosts.push(Ghost {
                channel: lane,
                node: name,
                holder: holder.clone(),
                lease: channel.lease,
                taken,
                tolerance,
            });
        }
        if lost {
            note!(
                self,
                "node {n} does not hear of its claim {holder} ({})",
                if ran { "it was made" } else { "it was not made, so far" }
            );
            if self.is(Mistake::SendAfterALostClaim) {
                self.lease_blindly(n, lane, &channel, &granted, asked_at);
            }
            self.nodes[n].lanes[lane].wasted = true;
            let ids = granted.into_iter().map(|(id, _)| id).collect();
            let until = self.now() + micros(channel.lease);
            self.nodes[n].backs.push(Back { ids, holder, next: 0, until });
            self.stumble(n, lane, "claim");
            return Ok(true);
        }
        let Some(claimed) = claimed else { return Ok(true) };
        note!(
            self,
            "node {n} claims {:?}{}{}{}, spent before {:?}, stale {:?}",
            claimed.leased.iter().map(|leased| leased.id.0).collect::<Vec<_>>(),
            if claimed.held_back { ", held back" } else { "" },
            if claimed.clocks_apart { ", clocks apart" } else { "" },
            if claimed.outdated { ", outdated" } else { "" },
            claimed.spent_before.iter().map(|id| id.0).collect::<Vec<_>>(),
            claimed.stale.iter().map(|id| id.0).collect::<Vec<_>>(),
        );
        let leash = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let leash = if self.is(Mistake::NoLeash) { leash + Duration::from_hours(1) } else { leash };
        let mut leased = claimed.leased;
        leased.sort_by_key(|leased| leased.id);
        for refund in leased {
            let Some((_, permit)) = granted.iter().find(|(id, _)| *id == refund.id) else { continue };
            let send = Send { channel: Arc::clone(&channel), lane, refund, permit: permit.clone(), leash };
            self.nodes[n].sends.push(send);
        }
        let refresh = claimed.outdated || !claimed.spent_before.is_empty();
        if let Some((_, permit)) = granted.first().filter(|_| refresh) {
            for limit in &channel.limits {
                self.nodes[n].lanes[lane]
                    .errands
                    .push_back(Errand::CatchUp(Arc::clone(limit), permit.clone()));
            }
        }
        if claimed.held_back || claimed.clocks_apart {
            self.nodes[n].lanes[lane].wasted = true;
        }
        if claimed.held_back {
            self.hear(n).await?;
        }
        if claimed.clocks_apart {
            self.nodes[n].lanes[lane].not_before = self.now() + 1_000_000;
        }
        Ok(true)
    }

    /// What a dispatcher does that does not wait for its claim, or goes on without having heard of it.
    fn lease_blindly(
        &mut self,
        n: usize,
        lane: usize,
        channel: &Arc<Channel>,
        granted: &[(RefundId, Permit)],
        asked_at: std::time::Instant,
    ) {
        for (id, permit) in granted {
            let epoch = self.rows.get(&id.0).map_or(0, |row| row.epoch) + 1;
            let refund = Leased {
                id: *id,
                epoch,
                attempt: 1,
                is_resend: false,
                is_first: true,
                owed: refundd::refund::Owed {
                    refund_id: *id,
                    refund_ref: String::new(),
                    amount_minor: 0,
                    currency: String::new(),
                    bank_ref: None,
                },
                request_id: refundd::refund::RequestId(uuid::Uuid::nil()),
                body: Arc::from(Vec::new()),
            };
            let leash = asked_at + channel.timeout;
            self.nodes[n].sends.push(Send {
                channel: Arc::clone(channel),
                lane,
                refund,
                permit: permit.clone(),
                leash,
            });
        }
    }

    /// `Send::run` and `Bank::send`, up to the first byte.
    pub async fn send(&mut self, n: usize) -> Lawful<bool> {
        let now = self.stage.clock.instant();
        let open: Vec<usize> = self.nodes[n]
            .sends
            .iter()
            .enumerate()
            .filter(|(_, send)| send.permit.span.is_none_or(|span| span.opens <= now))
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&open) else { return Ok(false) };
        let send = self.nodes[n].sends.remove(at);
        let lane = send.lane;
        // Dialling.
        let refused = !self.calm && self.plan.moods.refuses(&mut self.rng);
        if refused {
            let answer = Answer::new(Outcome::NotExecuted, "connect_refused", "refused");
            self.conclude(n, send, answer, None).await?;
            return Ok(true);
        }
        self.travel();
        let closes = send.permit.span.map_or(send.leash, |span| span.closes.min(send.leash));
        let closes = if self.is(Mistake::PermitUsedLate) { send.leash } else { closes };
        if self.stage.clock.instant() >= closes {
            let answer = Answer::new(Outcome::HandedBack, "permit_lapsed", "the permit's span was over");
            self.conclude(n, send, answer, None).await?;
            return Ok(true);
        }
        self.may_leave(&send).await?;
        let call = self.transmit(n, &send)?;
        note!(self, "node {n} sends refund {} on c{lane}, attempt {}", send.refund.id, send.refund.attempt);
        self.nodes[n].flights.push(Flight { send, call });
        Ok(true)
    }

    /// The request is on its way; the bank's ledger knows what will come of it.
    fn transmit(&mut self, n: usize, send: &Send) -> Lawful<usize> {
        let now = self.now();
        let timeout = micros(send.channel.timeout);
        let quick = send.channel.limits.iter().map(|limit| micros(limit.rule.lateness) / 2 - 1).min();
        let moods = if self.calm { super::bank::Moods::calm() } else { self.plan.moods.clone() };
        let course = Course::draw(&moods, &mut self.rng, timeout, quick.unwrap_or(30_000));
        let key = if self.is(Mistake::KeyPerAttempt) {
            refundd::refund::RequestId(uuid::Uuid::from_u128(self.bank.calls.len() as u128))
        } else {
            send.refund.request_id
        };
        self.bank.calls.push(Call {
            refund: send.refund.id,
            key,
            body: Arc::clone(&send.refund.body),
            channel: send.lane,
            node: n,
            process: self.nodes[n].process,
            permits: send.permit.numbers.clone(),
            sent: now,
            arrives: course.way.map(|way| now + way),
            in_time: course.in_time,
            executes: course.executes.map(|at| now + at),
            ends: now + course.ends,
            seen: course.seen,
        });
        self.judge_last_call()?;
        Ok(self.bank.calls.len() - 1)
    }

    /// `Bank::exchange` after the answer, `Send::run` to its end.
    pub async fn land(&mut self, n: usize) -> Lawful<bool> {
        let now = self.now();
        let over: Vec<usize> = self.nodes[n]
            .flights
            .iter()
            .enumerate()
            .filter(|(_, flight)| self.bank.calls[flight.call].ends <= now)
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&over) else { return Ok(false) };
        let Flight { send, call } = self.nodes[n].flights.remove(at);
        let call = self.bank.calls[call].clone();
        let mut answer = match &call.seen {
            Seen::Whole { status, headers, body } => {
                verdict(&send.channel, &send.refund.owed, *status, headers, body)
            }
            Seen::Cut => Answer::new(Outcome::Unknown, "answer_lost", "the connection was cut"),
            Seen::TimeOut => Answer::new(Outcome::Unknown, "timeout", "no whole answer in time"),
        };
        if let Seen::Whole { status: 307, .. } = call.seen
            && self.is(Mistake::RedirectsFollowed)
        {
            self.may_leave(&send).await?;
            let call = self.transmit(n, &send)?;
            self.nodes[n].flights.push(Flight { send, call });
            return Ok(true);
        }
        if let Some(mistake) = self.mistake {
            mistake.reads(&mut answer);
        }
        self.conclude(n, send, answer, Some(call.sent)).await?;
        Ok(true)
    }

    async fn conclude(&mut self, n: usize, send: Send, answer: Answer, started: Option<i64>) -> Lawful<()> {
        let sending = Sending {
            number: u32::try_from(send.refund.attempt).unwrap_or(u32::MAX),
            is_resend: send.refund.is_resend && !self.is(Mistake::ResendIsFirst),
        };
        let channel = &send.channel;
        let jitter = self.rng.f64();
        let mut settlement = Settlement::of(&answer, sending, &channel.policy(), jitter);
        if let Some(mistake) = self.mistake {
            mistake.settles(&answer, &mut settlement);
        }
        note!(
            self,
            "node {n}: refund {} came to {}, and goes to {}",
            send.refund.id,
            answer.code,
            settlement.next
        );
        // `hold_back`
        let holds = matches!(answer.outcome, Outcome::AskedToWait { .. } | Outcome::Unauthorised);
        if holds {
            self.travel();
            let now = self.now();
            let failed = self.troubled();
            self.stage.tell_time().await;
            if matches!(answer.outcome, Outcome::Unauthorised) {
                self.nodes[n].held.insert(send.lane, None);
                if !failed {
                    let name = self.nodes[n].name.clone();
                    taken(self.stage.store.pause(channel.name.as_str(), "not let in", &name, true).await)?;
                }
            } else {
                self.nodes[n].held.insert(send.lane, Some(now + micros(settlement.wait)));
                if !failed {
                    taken(self.stage.store.cool(&channel.name, settlement.wait, "asked to", false).await)?;
                }
            }
            self.observe().await?;
        }
        let numbers = &send.permit.numbers;
        let permit = numbers.iter().map(PermitNumber::describe).collect::<Vec<_>>().join(",");
        self.nodes[n].outbox.push(Settled {
            id: send.refund.id,
            epoch: send.refund.epoch,
            channel: channel.name.clone(),
            attempt: send.refund.attempt,
            started: started.map(|_| self.stage.clock.instant()),
            is_first: send.refund.is_first,
            permit: (!numbers.is_empty()).then_some(permit),
            answer,
            settlement,
        });
        Ok(())
    }

    /// `Settler::write`.
    pub async fn settle(&mut self, n: usize) -> Lawful<bool> {
        let again = !self.nodes[n].again.is_empty();
        let batch = if again {
            std::mem::take(&mut self.nodes[n].again)
        } else {
            std::mem::take(&mut self.nodes[n].outbox)
        };
        if batch.is_empty() {
            return Ok(false);
        }
        self.travel();
        let lost = self.troubled();
        if !lost || self.rng.bool() {
            self.stage.tell_time().await;
            let name = self.nodes[n].name.clone();
            let moved = taken(self.stage.store.settle(&name, &batch, again).await)?;
            note!(
                self,
                "node {n} settles {:?}, of which {:?} move{}",
                batch.iter().map(|s| (s.id.0, s.settlement.next)).collect::<Vec<_>>(),
                moved.iter().map(|id| id.0).collect::<Vec<_>>(),
                if lost { ", and does not hear of it" } else { "" },
            );
            self.observe().await?;
        }
        if lost {
            self.nodes[n].again = batch;
        }
        Ok(true)
    }

    /// `Dispatcher::take_back`.
    pub async fn take_back(&mut self, n: usize) -> Lawful<bool> {
        let now = self.now();
        let Some(at) = self.nodes[n].backs.iter().position(|back| back.next <= now) else { return Ok(false) };
        let mut back = self.nodes[n].backs.remove(at);
        self.travel();
        let lost = self.troubled();
        let mut found = 0;
        if !lost {
            self.stage.tell_time().await;
            found = taken(self.stage.store.unclaim(&back.ids, &back.holder).await)?;
            note!(self, "node {n} takes back {found} of {:?} under {}", back.ids, back.holder);
            self.observe().await?;
        }
        if found == 0 && self.now() < back.until {
            back.next = self.now() + 1_000_000;
            self.nodes[n].backs.push(back);
        }
        Ok(true)
    }

    /// `Pulse::hear`.
    pub async fn hear(&mut self, n: usize) -> Lawful<()> {
        self.stage.tell_time().await;
        let now = self.now();
        let held = taken(self.stage.store.held().await)?;
        let lane = |name: &str| self.plan.files[0].iter().position(|channel| channel.name.as_str() == name);
        self.nodes[n].held = held
            .iter()
            .filter_map(|held| {
                let until = match (&held.paused, &held.cooling) {
                    (Some(_), _) => None,
                    (None, Some((left, _))) => Some(now + micros(*left)),
                    (None, None) => return None,
                };
                Some((lane(&held.channel)?, until))
            })
            .collect();
        Ok(())
    }

    /// `Feeder::feed_one`, the first half.
    pub async fn feed(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        self.nodes[n].hungry.remove(&lane);
        self.stage.tell_time().await;
        let channel = self.channel(n, lane).name.clone();
        let ids = taken(self.stage.store.due(&channel, CAPACITY).await)?;
        if !ids.is_empty() {
            self.nodes[n].food.push(Food { channel, ids, end: End::Back });
        }
        Ok(true)
    }

    /// Its other half, and that of `Recovery::bring_back_stranded`.
    pub async fn fill(&mut self, n: usize) -> Lawful<bool> {
        let Some(Food { channel, ids, end }) = self.nodes[n].food.pop() else { return Ok(false) };
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        match bucket.fill(&channel, &ids, end, CAPACITY).await {
            Ok(added) => {
                note!(
                    self,
                    "node {n} puts {added} of {:?} in line of {channel}",
                    ids.iter().map(|id| id.0).collect::<Vec<_>>()
                );
                if added > 0 {
                    let (now, lane) = (self.now(), self.channel_of(&channel));
                    let before = &mut self.nodes[n].lanes[lane].not_before;
                    *before = now.min(*before);
                }
            }
            Err(_) => note!(self, "node {n} fails to fill {channel}"),
        }
        Ok(true)
    }

    /// `Recovery::pass`, one statement of it.
    pub async fn recover(&mut self, n: usize, what: State) -> Lawful<bool> {
        self.travel();
        self.stage.tell_time().await;
        let store = self.stage.store.clone();
        let moved = match what {
            State::Sending => {
                taken(store.lapse_leases(500).await)?.iter().map(|lapsed| lapsed.id).collect::<Vec<_>>()
            }
            State::Ready => {
                taken(store.fail_past_deadline(500).await)?.into_iter().map(|(id, _)| id).collect()
            }
            State::Unknown => taken(store.show_unknown(500).await)?.into_iter().map(|(id, _)| id).collect(),
            _ => taken(store.show_accepted(500).await)?.into_iter().map(|(id, _)| id).collect(),
        };
        if !moved.is_empty() {
            note!(self, "node {n} recovers what was {what}: {moved:?}");
            self.observe().await?;
        }
        Ok(true)
    }

    /// `Recovery::bring_back_stranded`, the first half.
    pub async fn find_stranded(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        let channel = self.channel(n, lane).name.clone();
        let Ok(lines) = bucket.look(std::slice::from_ref(&channel)).await else { return Ok(true) };
        let Some(head) = lines[0].head else { return Ok(true) };
        self.stage.tell_time().await;
        let ids = taken(self.stage.store.due_before(&channel, head, 500).await)?;
        if !ids.is_empty() {
            self.nodes[n].food.push(Food { channel, ids, end: End::Front });
        }
        Ok(true)
    }
}

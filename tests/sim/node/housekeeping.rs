//! `settler.rs`, `heartbeat.rs`, `feeder.rs` and `recovery.rs`.

use refundd::bucket::{Bucket, BucketKind, End, Purpose};
use refundd::refund::{ChannelName, State};
use refundd::store::{Liveness, LookPlace, RecoveryLook, RecoveryMove, RedisTime};

use crate::clock::micros;
use crate::mistake::Mistake;
use crate::plan::Fault;
use crate::violation::{Checked, taken};
use crate::world::node::{CAPACITY, Fill};
use crate::world::{World, note};

impl World<'_> {
    /// `Settler::write`.
    pub async fn settle(&mut self, n: usize) -> Checked<bool> {
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
            self.stage.tell_time_and_look().await;
            let name = self.nodes[n].name.clone();
            let mut moved = taken(self.nodes[n].store.settle(&name, &batch, again).await)?.moved;
            // Postgres answers in the order of its plan, and the trace must not depend on the plan.
            moved.sort();
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

    /// `Heartbeat::read_suspensions`.
    pub async fn read_suspensions(&mut self, n: usize) -> Checked<()> {
        if !self.ever_suspended && !self.rows.values().any(|row| row.paused || row.cool_us.is_some()) {
            return Ok(());
        }
        self.stage.tell_time().await;
        let now = self.now();
        let suspensions = taken(self.nodes[n].store.suspensions().await)?;
        let index_of =
            |name: &str| self.plan.files[0].iter().position(|channel| channel.name.as_str() == name);
        let mut until = std::collections::BTreeMap::new();
        for one in suspensions.suspensions {
            let Some(channel_index) = one.channel.as_deref().and_then(index_of) else { continue };
            let end = one.left.map(|left| now + micros(left));
            // A suspension without an end outlasts all others.
            let longest = |other: &mut Option<i64>| *other = end.zip(*other).map(|(a, b)| a.max(b));
            until.entry(channel_index).and_modify(longest).or_insert(end);
        }
        self.nodes[n].suspended_until = until;
        Ok(())
    }

    /// `Heartbeat::write_liveness`, in runs where channels may be retired.
    async fn write_liveness(&mut self, n: usize) -> Checked<()> {
        let names: Vec<ChannelName> = (0..self.plan.files[0].len())
            .map(|channel_index| self.channel(n, channel_index).name.clone())
            .collect();
        let node = &mut self.nodes[n];
        let liveness = Liveness {
            node: &node.name,
            channels: (!node.names_are_known).then_some(names.as_slice()),
            config_digest: "sim",
            redis_is_away: false,
            bucket: BucketKind::Redis,
            status_report: None,
            settings: None,
        };
        let peers = taken(node.store.heartbeat(&liveness).await)?;
        node.names_are_known = peers.is_known;
        Ok(())
    }

    /// The part of `Recovery::keep_house` that looks at other nodes. The real one waits until its node has led for a
    /// while. Here it takes every node for dead now and then, and heartbeats have to bring the channels back.
    pub async fn retire(&mut self, n: usize) -> Checked<bool> {
        if !self.plan.has(Fault::Retire) {
            return Ok(false);
        }
        self.stage.tell_time().await;
        let store = &self.nodes[n].store;
        taken(store.delete_dead_nodes().await)?;
        let retired = taken(store.retire_channels().await)?;
        if !retired.is_empty() {
            note!(self, "node {n} retires {retired:?}");
            self.observe().await?;
        }
        Ok(true)
    }

    /// `Bucket::watch_clocks`, and the reading of the clock with which each channel worker begins.
    async fn reads_clock(&mut self, n: usize) {
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let mut done = Ok(());
        for channel_index in 0..self.plan.files[0].len() {
            let channel = self.channel(n, channel_index);
            done = done.and(self.nodes[n].bucket.watch_clock(&channel).await);
        }
        if !self.is(Mistake::ClockIsReadByTakesAlone) {
            done = done.and(self.nodes[n].bucket.watch_clocks().await);
        }
        if done.is_ok() {
            self.nodes[n].clock_read = Some(self.stage.redis.steps_of_clock());
        }
    }

    /// One heartbeat, with `Heartbeat::watch_clock`. Here every heartbeat records how far Redis's clock is from
    /// Postgres's; the real one does so with every fifth.
    pub async fn heartbeat(&mut self, n: usize) -> Checked<bool> {
        self.reads_clock(n).await;
        let watched = self.plan.has(Fault::PostgresClock) || self.plan.has(Fault::Retire);
        if self.nodes[n].knows_postgres_clock && !watched && !self.calm {
            return Ok(true);
        }
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let redis = self.nodes[n].bucket.time().await.ok().map(|(us, at)| RedisTime { us, at });
        self.travel();
        if self.troubled() {
            return Ok(true);
        }
        self.stage.tell_time().await;
        if self.plan.has(Fault::Retire) {
            self.write_liveness(n).await?;
        }
        let node = &mut self.nodes[n];
        let step = taken(node.store.watch_clock(&node.name, redis, true).await)?;
        node.knows_postgres_clock = node.store.clock_witness().is_some_and(|witness| !witness.needs_redis());
        if let Some(step) = step {
            note!(self, "node {n} writes down that Postgres's clock stepped by {} us", step.by_us);
            self.observe().await?;
        }
        Ok(true)
    }

    /// The first half of `Feeder::fill_one`: it reads due rows.
    pub async fn feed(&mut self, n: usize, channel_index: usize) -> Checked<bool> {
        self.nodes[n].to_feed.remove(&channel_index);
        if !self.wanted(Some(channel_index)) {
            return Ok(true);
        }
        self.stage.tell_time().await;
        let channel = self.channel(n, channel_index).name.clone();
        let ids = taken(self.nodes[n].store.due(&channel, CAPACITY + Bucket::MOST_AT_ONCE).await)?;
        if !ids.is_empty() {
            self.nodes[n].fills.push(Fill { purpose: Purpose::Send, channel, ids, end: End::Back });
        }
        Ok(true)
    }

    /// The second half of `Feeder::fill_one` and of `Recovery::bring_back_stranded`: it fills a bucket.
    pub async fn fill(&mut self, n: usize) -> Checked<bool> {
        let Some(Fill { purpose, channel, ids, end }) = self.nodes[n].fills.pop() else { return Ok(false) };
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        match bucket.fill_for(purpose, &channel, &ids, end, CAPACITY).await {
            Ok(added) => {
                note!(
                    self,
                    "node {n} puts {added} of {:?} into the bucket of {channel}{}",
                    ids.iter().map(|id| id.0).collect::<Vec<_>>(),
                    if purpose == Purpose::Inquire { ", to be asked about" } else { "" }
                );
                if added > 0 {
                    let (now, channel_index) = (self.now(), self.channel_of(&channel));
                    let worker = self.nodes[n].worker(purpose, channel_index);
                    worker.not_before = now.min(worker.not_before);
                    worker.depth = None;
                }
            }
            Err(_) => note!(self, "node {n} fails to fill {channel}"),
        }
        Ok(true)
    }

    /// `Recovery::pass`, one statement of it.
    pub async fn recover(&mut self, n: usize, what: State) -> Checked<bool> {
        if !self.could_recover(what) {
            return Ok(false);
        }
        self.travel();
        self.stage.tell_time().await;
        let store = self.nodes[n].store.clone();
        let (moves, looks): (&[RecoveryMove], &[RecoveryLook]) = match what {
            State::Sending => (&[RecoveryMove::Lapse], &[]),
            State::Ready => (&[RecoveryMove::FailLate], &[]),
            State::Review => (&[RecoveryMove::Plan, RecoveryMove::DropPlans], &[]),
            State::Unknown => (
                &[RecoveryMove::ShowHad, RecoveryMove::ShowUnknown],
                &[RecoveryLook::Moved, RecoveryLook::UsedUp],
            ),
            _ => (&[RecoveryMove::ShowAccepted], &[RecoveryLook::Overdue]),
        };
        let mut moved = Vec::new();
        for which in moves {
            moved.extend(taken(store.recover(*which, 500, &[]).await)?);
        }
        let mut planned = 0;
        for which in looks {
            let looked = taken(store.look_for(*which, 500, 20_000, &LookPlace::default(), &[]).await)?;
            moved.extend(looked.shown);
            planned += looked.planned;
        }
        if planned > 0 {
            note!(self, "node {n} plans {planned} inquiries");
            self.observe().await?;
        }
        let moved: Vec<_> = moved.into_iter().map(|refund| refund.id).collect();
        if !moved.is_empty() {
            note!(self, "node {n} recovers what was {what}: {moved:?}");
            self.observe().await?;
        }
        Ok(true)
    }

    /// Whether some row is of the kind that a statement of recovery reads. Without such a row even a wrong statement
    /// finds nothing, so it is not run: that saves time.
    fn could_recover(&self, what: State) -> bool {
        let now = self.stage.postgres_now();
        self.rows.values().any(|row| match what {
            State::Sending => row.state == State::Sending,
            State::Ready => !row.state.is_end() && row.deadline_us.is_some_and(|at| at <= now),
            _ => matches!(row.state, State::Unknown | State::Accepted),
        })
    }

    /// The first half of `Recovery::bring_back_stranded`: it reads the rows that are in no bucket.
    pub async fn find_stranded(&mut self, n: usize) -> Checked<bool> {
        if !self.wanted(None) {
            return Ok(false);
        }
        self.stage.tell_time().await;
        let due = taken(self.nodes[n].store.channels_with_due().await)?;
        let due: Vec<ChannelName> = due.iter().filter_map(|name| ChannelName::new(name).ok()).collect();
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        let buckets = bucket.survey(Purpose::Send, &due).await;
        let heads: Vec<_> = due
            .iter()
            .zip(buckets)
            .filter_map(|(channel, bucket)| Some((channel, bucket.ok()?.head?)))
            .collect();
        if heads.is_empty() {
            return Ok(true);
        }
        self.stage.tell_time().await;
        for (channel, ids) in taken(self.nodes[n].store.left_before(&heads, 500).await)? {
            self.nodes[n].fills.push(Fill { purpose: Purpose::Send, channel, ids, end: End::Front });
        }
        Ok(true)
    }
}

//! Takes refunds out of a bucket under permits, and acquires permits without refunds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::FromRedisValue;

use super::server::Call;
use super::{
    Acquired, Bucket, BucketError, LimitWait, OpeningTimes, Order, Purpose, Sharing, Take, Yield, micros,
    millis, misread, reply,
};
use crate::channel::Channel;
use crate::limiter::{Limit, Permit, Placement};
use crate::refund::id::{ChannelName, RefundId};

impl Bucket {
    /// Takes refunds that are due to be sent, each under one permit of every limit of the channel.
    pub async fn take(&self, channel: &Channel, order: Order) -> Result<Take, BucketError> {
        self.take_for(channel, order, Purpose::Send, Yield::Never).await
    }

    /// Takes refunds that are due for an inquiry, each under one permit of every limit of the channel. While the
    /// bucket for sends has ids, one permit goes to an inquiry after nine permits of sends, whichever nodes got them.
    pub async fn take_inquiries(
        &self,
        channel: &Channel,
        order: Order,
        yields: Yield,
    ) -> Result<Take, BucketError> {
        self.take_for(channel, order, Purpose::Inquire, yields).await
    }

    /// Takes up to `most` more ids out of the bucket for sends, for permits that an earlier take left over. Returns
    /// the ids, the oldest first, and the depth of the bucket after the call.
    pub async fn more(&self, name: &ChannelName, most: u32) -> Result<(Vec<RefundId>, u64), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.bucket(name, Purpose::Send)).key(self.keys.present(name, Purpose::Send));
        let most = most.clamp(1, Self::MOST_AT_ONCE);
        call.arg(most);
        let tag = self.keys.tag(name);
        let (reply, _) = self.ask(&self.server, &self.scripts.more, &call, name.as_str(), &tag).await?;
        let (_now, depth, ids): (i64, u64, Vec<i64>) =
            FromRedisValue::from_redis_value_ref(&reply).map_err(|_| misread(name.as_str(), &reply))?;
        if ids.len() > most as usize {
            return Err(misread(name.as_str(), &reply));
        }
        Ok((ids.into_iter().map(RefundId).collect(), depth))
    }

    /// Puts ids that were taken a moment ago at the front of the bucket again, the oldest first. Returns the depth of
    /// the bucket after the call. Without the call the ids come back from their rows, only later.
    pub async fn put_back(&self, name: &ChannelName, ids: &[RefundId]) -> Result<u64, BucketError> {
        self.put_back_into(name, Purpose::Send, ids).await
    }

    /// As [`Self::put_back`], for one of the channel's buckets.
    pub async fn put_back_into(
        &self,
        name: &ChannelName,
        purpose: Purpose,
        ids: &[RefundId],
    ) -> Result<u64, BucketError> {
        let mut call = Call::default();
        call.key(self.keys.bucket(name, purpose)).key(self.keys.present(name, purpose));
        for id in ids {
            call.arg(id.0);
        }
        let tag = self.keys.tag(name);
        let (reply, _) = self.ask(&self.server, &self.scripts.back, &call, name.as_str(), &tag).await?;
        let (_now, depth, _added): (i64, u64, u64) =
            FromRedisValue::from_redis_value_ref(&reply).map_err(|_| misread(name.as_str(), &reply))?;
        Ok(depth)
    }

    async fn take_for(
        &self,
        channel: &Channel,
        order: Order,
        purpose: Purpose,
        yields: Yield,
    ) -> Result<Take, BucketError> {
        if channel.limits.iter().any(|limit| limit.placement != Placement::Shared) {
            return self.take_with_shares(channel, order, purpose, yields).await;
        }
        self.take_shared(channel, &channel.limits, order, purpose, yields, OpeningTimes::ANY).await
    }

    /// Takes refunds under `limits`, those of the channel's limits that all nodes count together.
    pub(super) async fn take_shared(
        &self,
        channel: &Channel,
        limits: &[Arc<Limit>],
        order: Order,
        purpose: Purpose,
        yields: Yield,
        opening: OpeningTimes,
    ) -> Result<Take, BucketError> {
        let name = &channel.name;
        let tag = self.keys.tag(name);
        if let Some(by_us) = self.report_step(Placement::Shared, &tag).await? {
            return Ok(Take::ClockStepped { by_us });
        }
        let sharing = Sharing::of(channel);
        let mut call = Call::default();
        call.key(self.keys.bucket(name, purpose)).key(self.keys.present(name, purpose));
        call.key(self.keys.feeding(name, purpose)).key(self.keys.clock(&tag));
        call.key(self.keys.inquiry_share(name));
        call.arg(order.most()).arg(order.low_water).arg(millis(Self::FEEDING));
        call.arg(micros(order.lead_time.min(Self::LONGEST_LEAD_TIME))).arg(micros(self.tolerance));
        call.arg(sharing.filter(|_| purpose == Purpose::Send).map_or(0, |sharing| sharing.most));
        call.arg(micros(opening.after)).arg(micros(opening.within));
        for limit in limits {
            self.add_limit(limit, &mut call);
        }
        let verb = match sharing {
            Some(sharing) if yields != Yield::Never => {
                call.key(self.keys.bucket(name, Purpose::Send));
                call.arg(micros(sharing.spacing));
                call.arg(if yields == Yield::ToActiveSends { "active" } else { "all" });
                &self.scripts.yielding
            }
            _ => &self.scripts.take,
        };
        let (reply, read) = self.ask(&self.server, verb, &call, name.as_str(), &tag).await?;
        if !limits.is_empty()
            && let Some(by_us) = self.doubt(Placement::Shared, &tag, read).await?
        {
            return Ok(Take::ClockStepped { by_us });
        }
        // Where this node alone counts all limits, inquiries still wait for sends.
        let waits = if limits.is_empty() { channel.limits.as_slice() } else { limits };
        reply::take(limits, waits, order.most(), &reply, read).ok_or_else(|| misread(name.as_str(), &reply))
    }

    /// Counts a request once more, at the present time, because its first byte left after its permit had closed.
    pub async fn left_late(
        &self,
        name: &ChannelName,
        limits: &[Arc<Limit>],
        permit: &Permit,
    ) -> Result<(), BucketError> {
        for placement_is_shared in [true, false] {
            let counted: Vec<&Arc<Limit>> = limits
                .iter()
                .filter(|limit| (limit.placement == Placement::Shared) == placement_is_shared)
                .filter(|limit| permit.numbers.iter().any(|number| number.limit == limit.name))
                .collect();
            let Some(first) = counted.first() else { continue };
            let tag = if placement_is_shared { self.keys.tag(name) } else { None };
            let mut call = Call::default();
            call.key(self.keys.clock(&tag)).arg(micros(self.tolerance));
            for limit in &counted {
                self.add_limit(limit, &mut call);
            }
            for limit in &counted {
                let number = permit.numbers.iter().find(|number| number.limit == limit.name);
                call.arg(number.map_or(0, |number| number.window_start_us));
            }
            self.ask(self.counter_of(first), &self.scripts.late, &call, name.as_str(), &tag).await?;
        }
        Ok(())
    }

    /// Spends permits of one limit for another service: `want` permits that are good now, or none. After `until` it
    /// spends no permits of this node's share.
    pub async fn acquire(
        &self,
        limit: &Arc<Limit>,
        want: u32,
        until: Option<Instant>,
    ) -> Result<Acquired, BucketError> {
        let alone = match limit.placement {
            Placement::Shared => None,
            Placement::LocalShare { .. } => Some(self.counting.lock(std::slice::from_ref(limit)).await),
        };
        if alone.is_some() && until.is_some_and(|until| until <= Instant::now()) {
            let wait = LimitWait { span: Duration::ZERO, limit: limit.name.clone() };
            return Ok(Acquired::Denied { wait, left: 0 });
        }
        let tag = self.keys.tag_of_limit(&limit.name);
        if let Some(by_us) = self.report_step(limit.placement, &tag).await? {
            return Ok(Acquired::ClockStepped { by_us });
        }
        let mut call = Call::default();
        call.key(self.keys.clock(&tag));
        call.arg(want).arg(micros(self.tolerance));
        self.add_limit(limit, &mut call);
        let (reply, read) =
            self.ask(self.counter_of(limit), &self.scripts.acquire, &call, limit.name.as_str(), &tag).await?;
        if let Some(by_us) = self.doubt(limit.placement, &tag, read).await? {
            return Ok(Acquired::ClockStepped { by_us });
        }
        reply::acquire(limit, want, &reply, read).ok_or_else(|| misread(limit.name.as_str(), &reply))
    }
}

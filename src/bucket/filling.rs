//! Puts ids into buckets, removes them, and reads how full buckets are. No permit is spent.

use redis::{FromRedisValue, Value};

use super::server::Call;
use super::{Bucket, BucketDepth, BucketError, End, Purpose, misread};
use crate::refund::id::{ChannelName, RefundId};

impl Bucket {
    /// Puts ids into the channel's bucket for sends, the oldest first. Returns how many were not in it yet.
    pub async fn fill(
        &self,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        self.fill_for(Purpose::Send, channel, ids, end, capacity).await
    }

    /// Puts ids into one of the channel's buckets, the oldest first. Returns how many were not in it yet.
    pub async fn fill_for(
        &self,
        purpose: Purpose,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        let mut call = Call::default();
        call.key(self.keys.bucket(channel, purpose)).key(self.keys.present(channel, purpose));
        call.key(self.keys.feeding(channel, purpose));
        call.arg(capacity).arg(match end {
            End::Back => "back",
            End::Front => "front",
        });
        for id in ids {
            call.arg(id.0);
        }
        let tag = self.keys.tag(channel);
        let (reply, _) = self.ask(&self.server, &self.scripts.fill, &call, channel.as_str(), &tag).await?;
        let (_now, _depth, added): (i64, u64, u64) =
            FromRedisValue::from_redis_value_ref(&reply).map_err(|_| misread(channel.as_str(), &reply))?;
        Ok(added)
    }

    /// Removes ids from both of a channel's buckets, because their refunds have ended. Returns how many it removed.
    /// Without the call the ids do no harm: the claim drops them.
    pub async fn withdraw(&self, channel: &ChannelName, ids: &[RefundId]) -> Result<u64, BucketError> {
        let tag = self.keys.tag(channel);
        let mut total = 0;
        for purpose in [Purpose::Send, Purpose::Inquire] {
            let mut left = ids;
            while !left.is_empty() {
                let mut call = Call::default();
                call.key(self.keys.bucket(channel, purpose)).key(self.keys.present(channel, purpose));
                let batch = left.len().min(Self::MOST_AT_ONCE as usize);
                for id in &left[..batch] {
                    call.arg(id.0);
                }
                let (reply, _) =
                    self.ask(&self.server, &self.scripts.withdraw, &call, channel.as_str(), &tag).await?;
                let (_now, looked, removed): (i64, usize, u64) = FromRedisValue::from_redis_value_ref(&reply)
                    .map_err(|_| misread(channel.as_str(), &reply))?;
                total += removed;
                left = &left[looked.clamp(1, batch)..];
            }
        }
        Ok(total)
    }

    /// Reads the depth and the head of the channels' buckets for one purpose, and changes nothing. Each bucket has a
    /// result of its own: when one master of a cluster is away, the buckets of the other masters still have theirs.
    pub async fn survey(
        &self,
        purpose: Purpose,
        channels: &[ChannelName],
    ) -> Vec<Result<BucketDepth, BucketError>> {
        self.look(purpose, channels, "heads").await
    }

    /// Reads the depth alone of the channels' buckets, as [`Self::survey`] does.
    pub async fn depths(&self, purpose: Purpose, channels: &[ChannelName]) -> Vec<Result<u64, BucketError>> {
        let buckets = self.look(purpose, channels, "depths").await;
        buckets.into_iter().map(|bucket| Ok(bucket?.depth)).collect()
    }

    /// Whether this failure means that no bucket can be reached now: all are on one server, and it is away. A loop over
    /// many channels then ends, because each further call may wait a second for the same server.
    pub fn is_away_by(&self, error: &BucketError) -> bool {
        match error {
            BucketError::Ask { source, .. } => self.server.is_lost_by(source),
            BucketError::WrongServer { .. } => true,
            BucketError::Url(_)
            | BucketError::Memory(_)
            | BucketError::WrongType { .. }
            | BucketError::Reply { .. } => false,
        }
    }

    async fn look(
        &self,
        purpose: Purpose,
        channels: &[ChannelName],
        what: &str,
    ) -> Vec<Result<BucketDepth, BucketError>> {
        if channels.is_empty() {
            return Vec::new();
        }
        let lists: Vec<String> = channels.iter().map(|channel| self.keys.bucket(channel, purpose)).collect();
        let verb = &self.scripts.look;
        let replies = self.server.look(verb, &lists, what).await;
        let read = |(depth, head): &(Value, Value)| {
            let depth = u64::from_redis_value_ref(depth).ok()?;
            let head = Option::<i64>::from_redis_value_ref(head).ok().flatten().map(RefundId);
            Some(BucketDepth { depth, head })
        };
        channels
            .iter()
            .zip(replies)
            .map(|(channel, reply)| {
                let tag = self.keys.tag(channel);
                let reply =
                    reply.map_err(|source| self.failed(channel.as_str(), verb.name, &tag, &lists, source))?;
                self.watches.worked(&tag, verb.name);
                read(&reply)
                    .ok_or_else(|| misread(channel.as_str(), &Value::Array([reply.0, reply.1].to_vec())))
            })
            .collect()
    }
}

//! The counts that Redis has of limits: restores them from the ledger, and deletes those that may be wrong.

use std::sync::Arc;

use redis::Value;

use super::script::Verb;
use super::server::Call;
use super::{Bucket, BucketError, micros};
use crate::limiter::{Forgotten, LedgerCount, Limit, Placement, Rule, timing};

impl Bucket {
    /// Gives Redis the count of a limit that the ledger has. False if Redis does not take it: it has a newer one, or another
    /// node restores it by now.
    pub async fn restore(&self, limit: &Limit, spent: &LedgerCount) -> Result<bool, BucketError> {
        let mut call = Call::default();
        let tag = self.keys.tag_of_limit(&limit.name);
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name)).key(self.keys.clock(&tag));
        call.arg(limit.rule.to_string()).arg(spent.generation).arg(self.edges(limit));
        call.arg(micros(self.tolerance)).arg(spent.window_start_us).arg(spent.used);
        match spent.rest_us {
            Some(rest) => call.arg(rest),
            None => call.arg(""),
        };
        call.arg(spent.server.0.as_str());
        match spent.asked_to_restore_us {
            Some(asked) => call.arg(asked),
            None => call.arg(""),
        };
        for past in &spent.history {
            call.arg(past.at_us).arg(past.count);
            match past.over_us {
                Some(over) => call.arg(over),
                None => call.arg(""),
            };
        }
        let server = self.counter_of(limit);
        let (reply, _) = self.ask(server, &self.scripts.restore, &call, limit.name.as_str(), &tag).await?;
        Ok(reply == Value::Int(1))
    }

    /// Waits for `reading` of the ledger, and meanwhile tells Redis again and again that this node still restores the count.
    pub async fn while_restoring<T>(
        &self,
        forgotten: &Forgotten,
        mut reading: impl Future<Output = T> + Unpin,
    ) -> T {
        loop {
            tokio::select! {
                biased;
                read = &mut reading => return read,
                () = self.still_soon(forgotten) => {}
            }
        }
    }

    async fn still_soon(&self, forgotten: &Forgotten) {
        tokio::time::sleep(timing::STILL_EVERY).await;
        // While this node cannot reach Redis, another node may restore the count.
        let _ = self.still(forgotten).await;
    }

    /// Tells Redis that this node still restores the count of a limit. Otherwise another node may restore it after
    /// [`timing::SILENT_FOR`].
    pub async fn still(&self, forgotten: &Forgotten) -> Result<(), BucketError> {
        self.tell_as_restorer(forgotten, &self.scripts.still).await
    }

    /// Lets another node restore the count of a limit at once, because this node cannot read the ledger.
    pub async fn give_up(&self, forgotten: &Forgotten) -> Result<(), BucketError> {
        self.tell_as_restorer(forgotten, &self.scripts.give_up).await
    }

    /// Runs a verb that does nothing if another node restores the count by now.
    async fn tell_as_restorer(&self, forgotten: &Forgotten, verb: &Verb) -> Result<(), BucketError> {
        let name = &forgotten.limit.name;
        let mut call = Call::default();
        call.key(self.keys.limit(name)).arg(forgotten.now_us);
        let (server, tag) = (self.counter_of(&forgotten.limit), self.keys.tag_of_limit(name));
        self.ask(server, verb, &call, name.as_str(), &tag).await?;
        Ok(())
    }

    /// Deletes the count that Redis has of a limit, if it is of an older generation than `generation`. Then the next
    /// take replies FORGOT, and a node restores the count from the ledger.
    pub async fn forget(&self, limit: &Limit, generation: i64) -> Result<(), BucketError> {
        self.forget_what(limit, generation, "count").await
    }

    /// Deletes the rule that Redis has of a limit, and its count. For a rule that no node published.
    pub async fn forget_rule(&self, limit: &Limit) -> Result<(), BucketError> {
        self.forget_what(limit, i64::MAX, "rule").await
    }

    async fn forget_what(&self, limit: &Limit, generation: i64, what: &str) -> Result<(), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name)).arg(generation).arg(what);
        let tag = self.keys.tag_of_limit(&limit.name);
        self.ask(self.counter_of(limit), &self.scripts.forget, &call, limit.name.as_str(), &tag).await?;
        Ok(())
    }

    /// Deletes the times that waiting nodes reserved at these limits, because one of the nodes is gone. A denied node
    /// asks again at the time that it reserved. Nobody would use the time of the node that is gone.
    pub async fn free_reservations(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        for limit in limits.iter().filter(|limit| limit.placement == Placement::Shared) {
            let mut call = Call::default();
            call.key(self.keys.limit(&limit.name));
            let tag = self.keys.tag_of_limit(&limit.name);
            self.ask(&self.server, &self.scripts.reservations, &call, limit.name.as_str(), &tag).await?;
        }
        Ok(())
    }

    /// Deletes the counts of long windows, so that the ledger restores them. The ledger has no permits that were
    /// granted and never claimed, so they can be granted again; otherwise they would be missing for hours. A short
    /// window is over before this helps. The call is safe at any time, because the ledger refuses permits that are
    /// spent or of an older generation.
    ///
    /// A token bucket larger than what the ledger shows of it would lose more tokens than that.
    pub async fn forget_long_windows(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        let is_restored_whole =
            |rule: &Rule| rule.algorithm.burst().is_none_or(|burst| burst <= rule.permits);
        let long =
            |limit: &&Arc<Limit>| limit.rule.per >= Self::LONG_WINDOW && is_restored_whole(&limit.rule);
        for limit in limits.iter().filter(long) {
            self.forget(limit, i64::MAX).await?;
        }
        Ok(())
    }
}

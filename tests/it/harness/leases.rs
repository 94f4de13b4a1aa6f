//! Refunds as a claim, its end or a failover leaves them. The owner writes them by hand, so no node is needed.

use super::Scratch;

impl Scratch {
    /// Sets these refunds to `sending`, under their next epoch and a lease of one hour, and sets further columns.
    pub async fn lease(&self, which: &str, columns: &str) {
        self.sql(&format!(
            "update refundd.refunds set state = 'sending', lease_epoch = lease_epoch + 1, lease_node = 'a',
                    lease_until = now() + interval '1 hour', {columns} where {which}"
        ))
        .await;
    }

    /// Ends the leases of these refunds, and sets further columns. Returns the number of refunds.
    pub async fn release(&self, which: &str, columns: &str) -> u64 {
        self.sql(&format!(
            "update refundd.refunds set lease_node = null, lease_until = null, {columns} where {which}"
        ))
        .await
    }

    /// Forgets a refund and what came after it, as a standby that lagged has never heard of it: the next refund gets its id.
    pub async fn forget(&self, id: i64) {
        let forget = format!(
            "set session_replication_role = 'replica';
             delete from refundd.refunds where id >= {id};
             select setval('refundd.refunds_id_seq', {id}, false)"
        );
        let mut owner = self.connect().await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(forget)).execute(&mut owner).await.unwrap();
    }

    /// As the owner, brings refunds that are `ready` to review, as if a bank's answer had proven nothing.
    pub async fn to_review(&self, which: &str) {
        let ready = format!("state = 'ready' and {which}");
        self.lease(&ready, "first_sent_at = now(), version = version + 1").await;
        let columns = "state = 'review', attempts = 1, uncertain_at = now(), reason = 'the bank answered 500', version = version + 1";
        self.release(&format!("state = 'sending' and {which}"), columns).await;
        self.sql(&format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to, status, code, message)
             select id, channel, 'send', 1, 1, 'a#1', now(), 'review', 'review', 500, 'server_error', 'the bank answered 500'
               from refundd.refunds where state = 'review' and {which}"
        ))
        .await;
    }
}

//! Channels in the database: the settings that nodes publish, and the marks of full backlogs.

use std::fmt;
use std::time::Duration;

use sqlx::Row;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError, micros};
use crate::channel::{BankAddress, Channel};
use crate::refund::text::counted;
use crate::refund::{ChannelName, LimitName};

/// A channel as a node publishes it.
#[derive(Debug, Clone)]
pub struct Published {
    pub name: ChannelName,
    /// Without its query, where some banks want a key; with the name of the account at the bank, if the file has one.
    pub endpoint: String,
    /// The channel's settings, without secrets.
    pub settings: serde_json::Value,
    /// The most refunds that may wait; `None` for no bound.
    pub max_backlog: Option<u64>,
    /// The policy for `unknown` refunds: `review`, `inquire` or `resend`.
    pub on_unknown: &'static str,
    /// Whether the channel has an inquiry.
    pub inquires: bool,
    /// As [`crate::channel::Channel::resend_within`].
    pub resend_within: Option<Duration>,
    /// The most sends of one refund.
    pub most_sends: u32,
    pub bank_address: BankAddress,
}

impl Published {
    /// What a node publishes of a channel, with these settings, which have no secrets.
    pub fn of(channel: &Channel, settings: serde_json::Value) -> Published {
        let bank_address = channel.bank_address();
        Published {
            name: channel.name.clone(),
            endpoint: bank_address.endpoint.clone(),
            settings,
            max_backlog: channel.max_backlog,
            on_unknown: channel.on_unknown.as_str(),
            inquires: channel.inquiry.is_some(),
            resend_within: channel.resend_within(),
            most_sends: channel.retry.sends,
            bank_address,
        }
    }
}

/// A channel as a node published it last.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningChannel {
    pub channel: String,
    /// Its settings, as [`Published::settings`].
    pub settings: serde_json::Value,
    /// The node that published them.
    pub published_by: String,
}

/// Refunds of a channel that may have been sent to another address than the channel's present one.
#[derive(Debug, Clone)]
pub struct LeftBehind {
    pub channel: String,
    pub refunds: i64,
    /// The address to which they may have been sent.
    pub was: BankAddress,
    /// The channel's present address.
    pub here: BankAddress,
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftBehind { channel, refunds, was, here } = self;
        let (was, here) = if was.endpoint == here.endpoint {
            let both = |at: &BankAddress| format!("{} (asked at {})", at.endpoint, at.inquiry);
            (both(was), both(here))
        } else {
            (was.endpoint.clone(), here.endpoint.clone())
        };
        write!(
            f,
            "Channel `{channel}`: {} may have been sent to {was}. They will not be asked about nor sent \
             again at {here}, and go to review a minute after the change; to have them asked about, put the old address back",
            counted(u64::try_from(*refunds).unwrap_or(0), "refund")
        )
    }
}

// A statement of its own: PUBLISH must see the addresses that another node publishes at this time.
const PUBLISH_ADDRESSES: Statement = statement!(include_str!("sql/publish_addresses.sql"));

const PUBLISH: Statement = statement!(
    "
    insert into refundd.channels as c
           (channel, endpoint, settings, max_backlog, published_by, on_unknown, inquires, resend_within, most_sends, address)
    select a.channel, a.endpoint, a.settings::jsonb, a.max_backlog, :node,
           a.on_unknown, a.inquires, a.resend_us * interval '1 microsecond', a.most_sends, known.address
      from unnest(:channel::text[], :endpoint::text[], :settings::text[], :max_backlog::bigint[], :on_unknown::text[],
                  :inquires::boolean[], :resend_us::bigint[], :most_sends::integer[], :sent_to::text[], :asked_at::text[])
           as a (channel, endpoint, settings, max_backlog, on_unknown, inquires, resend_us, most_sends, sent_to, asked_at)
      join refundd.addresses known on known.channel = a.channel and known.endpoint = a.sent_to and known.inquiry = a.asked_at
     order by a.channel
        on conflict (channel) do update
       set endpoint = excluded.endpoint, settings = excluded.settings, max_backlog = excluded.max_backlog,
           on_unknown = excluded.on_unknown, inquires = excluded.inquires,
           resend_within = excluded.resend_within, most_sends = excluded.most_sends,
           address = excluded.address,
           address_since = case when c.address is distinct from excluded.address then now() else c.address_since end,
           -- What a bank refused says nothing about other limits, nor about another bank.
           slow_percent = case when (c.settings -> 'limits', c.address) is not distinct from (excluded.settings -> 'limits', excluded.address) then c.slow_percent end,
           slow_since = case when (c.settings -> 'limits', c.address) is not distinct from (excluded.settings -> 'limits', excluded.address) then c.slow_since end,
           full_since = case when excluded.max_backlog is null then null else c.full_since end,
           published_by = excluded.published_by, published_at = now(), retired_at = null
     where (c.endpoint, c.settings, c.max_backlog, c.on_unknown, c.inquires, c.resend_within, c.most_sends, c.address)
           is distinct from (excluded.endpoint, excluded.settings, excluded.max_backlog,
                             excluded.on_unknown, excluded.inquires, excluded.resend_within, excluded.most_sends, excluded.address)
        or c.retired_at is not null"
);

// The sum is another one after each change, also where Postgres's clock was set back in between.
const PUBLISHED_MARK: &str = "
    select case when bool_or(p.at between now() - interval '20 seconds' and now()) is not true
                then coalesce(sum((extract(epoch from p.at) * 1000000)::bigint) filter (where isfinite(p.at)), 0)::text end
      from (select c.published_at as at from refundd.channels c
             union all
            select (select max(r.published_at) from refundd.limit_rules r where r.limit_name = a.limit_name)
              from unnest($1::text[]) as a (limit_name)) p";

const LEFT_BEHIND: &str = "
    select p.channel, p.endpoint, p.inquiry, was.endpoint as was_endpoint, was.inquiry as was_inquiry, count(*) as refunds
      from unnest($1::text[], $2::text[], $3::text[]) as p (channel, endpoint, inquiry)
      join refundd.refunds u on u.channel = p.channel and u.state in ('sending', 'unknown', 'accepted')
      join refundd.addresses was
        on was.address = coalesce(u.sent_to, (select min(a.address) from refundd.addresses a where a.channel = p.channel))
     where was.endpoint <> p.endpoint or (p.inquiry <> '' and was.inquiry not in ('', p.inquiry))
     group by p.channel, p.endpoint, p.inquiry, was.endpoint, was.inquiry
     order by p.channel, was.endpoint, was.inquiry";

const RUNNING: &str = "
    select channel, settings::text as settings, split_part(published_by, '#', 1) as published_by
      from refundd.channels where retired_at is null order by channel";

const NAMES: &str = "select channel from refundd.channels where retired_at is null order by channel";

const RETIRE: &str = "
    update refundd.channels c set retired_at = now()
     where c.retired_at is null and c.published_at < now() - interval '5 minutes'
       and c.channel not in (select unnest(n.channels) from refundd.nodes n) -- all names in one hash
    returning channel";

const WATCH_BACKLOG: &str = include_str!("sql/watch_backlog.sql");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("publish_addresses", PUBLISH_ADDRESSES.sql),
    ("publish", PUBLISH.sql),
    ("published_mark", PUBLISHED_MARK),
    ("left_behind", LEFT_BEHIND),
    ("running", RUNNING),
    ("channel_names", NAMES),
    ("retire", RETIRE),
    ("watch_backlog", WATCH_BACKLOG),
];

impl Store {
    /// Adds the addresses of the banks of a node's channels that Postgres does not have; answers how many. Changes nothing else.
    pub async fn publish_addresses(&self, node: &str, channels: &[Published]) -> Result<u64, StoreError> {
        let addresses = bind!(
            PUBLISH_ADDRESSES,
            channel: column(channels, |c| c.name.as_str()),
            endpoint: column(channels, |c| c.bank_address.endpoint.as_str()),
            inquiry: column(channels, |c| c.bank_address.inquiry.as_str()),
            node: node,
        );
        let row = addresses.one(&self.db.patient()).await.doing("publish the addresses of channels")?;
        Ok(row.get::<i64, _>("added").unsigned_abs())
    }

    /// Writes the channels that a node runs. Rows with the same values stay untouched; answers how many rows changed.
    pub async fn publish(&self, node: &str, channels: &[Published]) -> Result<u64, StoreError> {
        self.publish_addresses(node, channels).await?;
        let query = bind!(
            PUBLISH,
            node: node,
            channel: column(channels, |c| c.name.as_str()),
            endpoint: column(channels, |c| c.endpoint.as_str()),
            settings: column(channels, |c| c.settings.to_string()),
            max_backlog: column(channels, |c| c.max_backlog.and_then(|most| i64::try_from(most).ok())),
            on_unknown: column(channels, |c| c.on_unknown),
            inquires: column(channels, |c| c.inquires),
            resend_us: column(channels, |c| c.resend_within.map(micros)),
            most_sends: column(channels, |c| i32::try_from(c.most_sends).unwrap_or(i32::MAX)),
            sent_to: column(channels, |c| c.bank_address.endpoint.as_str()),
            asked_at: column(channels, |c| c.bank_address.inquiry.as_str()),
        );
        Ok(query.run(&self.db.patient()).await.doing("publish channels")?.rows_affected())
    }

    /// A text that is another one after each change of a channel's settings or of the rule of one of these limits. `None` while
    /// the last change is younger than 20 s: its node may not have said yet that it lives, and what it runs.
    pub async fn published_mark(&self, limits: &[LimitName]) -> Result<Option<String>, StoreError> {
        let limits = column(limits, LimitName::as_str);
        let mark = sqlx::query_scalar(PUBLISHED_MARK).bind(limits).one(&self.db.patient()).await;
        mark.doing("read when channels and rules were published last")
    }

    /// Counts the refunds that may have been sent to another address than the one given for their channel.
    pub async fn left_behind<'a>(
        &self,
        channels: impl IntoIterator<Item = (&'a ChannelName, BankAddress)>,
    ) -> Result<Vec<LeftBehind>, StoreError> {
        let (names, addresses): (Vec<&str>, Vec<BankAddress>) =
            channels.into_iter().map(|(name, address)| (name.as_str(), address)).unzip();
        let rows = sqlx::query(LEFT_BEHIND)
            .bind(names)
            .bind(addresses.iter().map(|a| a.endpoint.as_str()).collect::<Vec<_>>())
            .bind(addresses.iter().map(|a| a.inquiry.as_str()).collect::<Vec<_>>())
            .all(&self.db.patient())
            .await
            .doing("count refunds that may have been sent to other addresses")?;
        Ok(rows
            .iter()
            .map(|row| LeftBehind {
                channel: row.get("channel"),
                refunds: row.get("refunds"),
                was: BankAddress { endpoint: row.get("was_endpoint"), inquiry: row.get("was_inquiry") },
                here: BankAddress { endpoint: row.get("endpoint"), inquiry: row.get("inquiry") },
            })
            .collect())
    }

    /// The channels that are not retired.
    pub async fn running_channels(&self) -> Result<Vec<RunningChannel>, StoreError> {
        let rows = sqlx::query(RUNNING).all(&self.db.patient()).await.doing("read what nodes published")?;
        let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
        Ok(rows
            .iter()
            .map(|row| RunningChannel {
                channel: row.get("channel"),
                settings: read(row.get("settings")),
                published_by: row.get("published_by"),
            })
            .collect())
    }

    /// The names of the channels that are not retired, in order.
    pub async fn channel_names(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(NAMES).all(&self.db).await.doing("read the names of channels")
    }

    /// Marks as retired the channels that no living node runs; answers the channels that it marked now.
    pub async fn retire_channels(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(RETIRE).all(&self.db).await.doing("retire channels")
    }

    /// Marks the channels whose bounded backlog is full; answers each channel whose mark changed, with the mark.
    /// Reads an index entry for each refund that waits, up to the bound.
    pub async fn watch_backlogs(&self) -> Result<Vec<(String, bool)>, StoreError> {
        let rows =
            sqlx::query(WATCH_BACKLOG).all(&self.db.patient()).await.doing("watch bounded backlogs")?;
        Ok(rows.iter().map(|row| (row.get("channel"), row.get("is_full"))).collect())
    }
}

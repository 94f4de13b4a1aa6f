//! The promises of refundd, on real Postgres and Redis, judged by the pretend bank's own ledger.
//!
//! Servers are started once for the whole run and are private to it; every test has a database, a key
//! prefix and a bank of its own, so all run at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

mod alarms;
mod attacks;
mod backup;
mod breaker;
mod bucket;
mod callers;
mod card_laws;
mod chain;
mod changes;
mod cli;
mod clock_steps;
mod cluster;
mod compose;
mod connections;
mod crash;
mod decisions;
mod desk;
mod dispatch;
mod docs;
mod doctor;
mod doors;
mod events;
mod faults;
mod forged;
mod heartbeat;
mod house;
mod http;
mod inquiry;
mod journal;
mod ledger;
mod limits;
mod listener_tls;
mod logs;
mod moved;
mod moves;
mod notify;
mod outages;
mod package;
mod page;
mod patterns;
mod pauses;
mod pooler;
mod producers;
mod prove;
mod published;
mod reach;
mod recovery;
mod redis_cluster;
mod redis_kind;
mod redis_user;
mod refused_values;
mod reload;
mod resend;
mod retire;
mod review;
mod roles;
mod scale;
mod schema;
mod secrets;
mod server_tls;
mod shutdown;
mod signing;
mod slow;
mod slow_thousands;
mod standby;
mod store;
mod texts;
mod tls;
mod tokens;
mod traces;
mod two_people;
mod unit;

//! Puts the Lua scripts together, once: the constants, the prelude, the algorithms if the verb counts, and the verb.

use redis::Script;

use super::exchange::Sharing;
use super::micros;
use crate::limiter::{Algorithm, Permit, timing};

/// The beginning of every verb, after the constants.
const PRELUDE: &str = include_str!("lua/prelude.lua");

/// The limits: which rule is in effect, the algorithms, and how several limits grant together.
fn limits() -> String {
    // The two forms of `paced` share one script.
    let mut algorithms: Vec<&str> = Algorithm::all(1, 1).iter().map(Algorithm::script).collect();
    algorithms.dedup();
    [include_str!("../limiter/lua/rule.lua"), &algorithms.concat(), include_str!("../limiter/lua/grant.lua")]
        .concat()
}

/// One verb: its script for Redis, and its source for the server in memory.
#[derive(Debug)]
pub struct Verb {
    /// For the report of failures.
    pub name: &'static str,
    pub script: Script,
    pub source: String,
}

/// All verbs. The header of each Lua file says what its verb does.
#[derive(Debug)]
pub struct Scripts {
    pub take: Verb,
    /// A take that lets the bucket for sends go first.
    pub yielding: Verb,
    pub look: Verb,
    pub fill: Verb,
    pub withdraw: Verb,
    pub more: Verb,
    pub back: Verb,
    pub acquire: Verb,
    pub reserve: Verb,
    pub restore: Verb,
    pub still: Verb,
    pub give_up: Verb,
    pub forget: Verb,
    pub stepped: Verb,
    pub reservations: Verb,
    pub late: Verb,
    pub time: Verb,
}

impl Scripts {
    pub fn new() -> Self {
        let (shared, limits) = (format!("{}{PRELUDE}", constants()), limits());
        let verb = |name, source: String| Verb { name, script: Script::new(&source), source };
        let plain = |name, text: &str| verb(name, format!("{shared}{text}"));
        let counting = |name, text: &str| verb(name, format!("{shared}{limits}{text}"));
        Scripts {
            take: counting("take", include_str!("lua/take.lua")),
            yielding: counting(
                "yielding",
                concat!(
                    "local function take()\n",
                    include_str!("lua/take.lua"),
                    "end\n",
                    include_str!("lua/yield.lua"),
                ),
            ),
            look: plain("look", include_str!("lua/look.lua")),
            fill: plain("fill", include_str!("lua/fill.lua")),
            withdraw: plain("withdraw", include_str!("lua/withdraw.lua")),
            more: plain("more", include_str!("lua/more.lua")),
            back: plain("back", include_str!("lua/back.lua")),
            acquire: counting("acquire", include_str!("lua/acquire.lua")),
            reserve: counting("reserve", include_str!("lua/reserve.lua")),
            restore: counting("restore", include_str!("lua/restore.lua")),
            still: plain("still", include_str!("lua/still.lua")),
            give_up: plain("give_up", include_str!("lua/give_up.lua")),
            forget: plain("forget", include_str!("lua/forget.lua")),
            stepped: plain("stepped", include_str!("lua/stepped.lua")),
            late: counting("late", include_str!("lua/late.lua")),
            reservations: plain("reservations", include_str!("lua/reservations.lua")),
            time: plain("time", include_str!("lua/time.lua")),
        }
    }
}

/// The codes at the beginning of replies.
pub const GRANTED: i64 = 1;
pub const DENIED: i64 = 2;
pub const EMPTY: i64 = 3;
pub const FORGOT: i64 = 4;
/// Redis forgot a count, and another node restores it from the ledger or will restore it.
pub const RESTORING: i64 = 5;

/// The constants that the scripts share with Rust, as Lua: codes, and times in us.
fn constants() -> String {
    let codes = [
        ("GRANTED", GRANTED),
        ("DENIED", DENIED),
        ("EMPTY", EMPTY),
        ("FORGOT", FORGOT),
        ("RESTORING", RESTORING),
    ];
    let times = [
        ("LIFETIME", Permit::LIFETIME),
        ("LONGEST_LEAD_TIME", Permit::LONGEST_LEAD_TIME),
        ("NEXT_SLOT", Permit::NEXT_SLOT),
        ("SEEN_FOR", timing::SEEN_FOR),
        ("STAYS_AWAY", timing::STAYS_AWAY),
        ("STAYS_AWAY_OVERRULED", timing::STAYS_AWAY_UNDER_STRICTER),
        ("FURTHEST_RESERVATION", timing::FURTHEST_RESERVATION),
        ("WHILE_RESTORING", timing::WHILE_RESTORING),
        ("FOR_THE_STRICTER", timing::FOR_THE_STRICTER),
        ("SILENT_FOR", timing::SILENT_FOR),
    ];
    let codes = codes.map(|(name, code)| format!("local {name} = {code}\n"));
    let sends = format!("local SENDS_EACH = {}\n", Sharing::SENDS);
    let times = times.map(|(name, time)| format!("local {name} = {}\n", micros(time)));
    codes.concat() + &sends + &times.concat()
}

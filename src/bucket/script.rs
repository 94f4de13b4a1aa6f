//! The Lua scripts: prelude, algorithms and one verb, put together once.

use redis::Script;

/// What every verb begins with.
const PRELUDE: &str = include_str!("lua/prelude.lua");

/// The limits: which rule is in force, the five kinds, and how several grant together.
const LIMITS: &[&str] = &[
    include_str!("../limiter/lua/rule.lua"),
    include_str!("../limiter/lua/fixed_window.lua"),
    include_str!("../limiter/lua/paced.lua"),
    include_str!("../limiter/lua/sliding_log.lua"),
    include_str!("../limiter/lua/sliding_window.lua"),
    include_str!("../limiter/lua/token_bucket.lua"),
    include_str!("../limiter/lua/grant.lua"),
];

/// One verb, ready for whoever runs it.
#[derive(Debug)]
pub struct Verb {
    pub script: Script,
    pub source: String,
}

/// The verbs.
#[derive(Debug)]
pub struct Scripts {
    pub take: Verb,
    /// A take of those who let others go first.
    pub yielding: Verb,
    pub fill: Verb,
    pub withdraw: Verb,
    pub more: Verb,
    pub back: Verb,
    pub acquire: Verb,
    pub reserve: Verb,
    pub remind: Verb,
    pub forget: Verb,
    pub stepped: Verb,
    pub turns: Verb,
    pub late: Verb,
    pub time: Verb,
}

impl Scripts {
    pub fn new() -> Self {
        let verb = |source: String| Verb { script: Script::new(&source), source };
        let plain = |text: &str| verb(format!("{PRELUDE}{text}"));
        let counting = |text: &str| verb(format!("{PRELUDE}{}{text}", LIMITS.concat()));
        Scripts {
            take: counting(include_str!("lua/take.lua")),
            yielding: counting(concat!(
                "local function take()\n",
                include_str!("lua/take.lua"),
                "end\n",
                include_str!("lua/yield.lua"),
            )),
            fill: plain(include_str!("lua/fill.lua")),
            withdraw: plain(include_str!("lua/withdraw.lua")),
            more: plain(include_str!("lua/more.lua")),
            back: plain(include_str!("lua/back.lua")),
            acquire: counting(include_str!("lua/acquire.lua")),
            reserve: counting(include_str!("lua/reserve.lua")),
            remind: counting(include_str!("lua/remind.lua")),
            forget: plain(include_str!("lua/forget.lua")),
            stepped: plain(include_str!("lua/stepped.lua")),
            late: counting(include_str!("lua/late.lua")),
            turns: plain(include_str!("lua/turns.lua")),
            time: plain(include_str!("lua/time.lua")),
        }
    }
}

/// The prelude's reply codes.
pub const GRANTED: i64 = 1;
pub const DENIED: i64 = 2;
pub const EMPTY: i64 = 3;
pub const FORGOT: i64 = 4;

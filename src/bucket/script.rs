//! The Lua scripts: prelude, algorithms and one verb, put together at compile time.

use redis::Script;

const PRELUDE: &str = include_str!("lua/prelude.lua");
const FIXED_WINDOW: &str = include_str!("../limiter/lua/fixed_window.lua");

/// The verbs.
#[derive(Debug)]
pub struct Scripts {
    pub take: Script,
    pub fill: Script,
    pub remind: Script,
}

impl Scripts {
    pub fn new() -> Self {
        let script = |parts: &[&str]| Script::new(&parts.concat());
        Scripts {
            take: script(&[PRELUDE, FIXED_WINDOW, include_str!("lua/take.lua")]),
            fill: script(&[PRELUDE, include_str!("lua/fill.lua")]),
            remind: script(&[PRELUDE, include_str!("lua/remind.lua")]),
        }
    }
}

/// The prelude's reply codes.
pub const GRANTED: i64 = 1;
pub const DENIED: i64 = 2;
pub const EMPTY: i64 = 3;
pub const FORGOT: i64 = 4;

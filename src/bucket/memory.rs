//! Runs the bucket's scripts in this process: for `kind = "memory"`, and for limits of which a node counts its own
//! share.
//!
//! It runs the same scripts as Redis, over a keyspace with only the commands that they use. So there is no second
//! limiter. As in Redis, one script runs at a time, the clock stands still while a script runs, and scripts have only
//! the globals that Redis has. Unlike Redis, it loses everything when the process ends.
//!
//! A script that fails does not undo what it wrote before the failure, as in Redis.

mod commands;
mod keyspace;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jiff::Timestamp;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};
use redis::{RedisError, Value};

use crate::limiter::timing::micros;
use crate::lock::Lock;

use commands::Reply;
use keyspace::Keyspace;

type Clock = Box<dyn Fn() -> i64 + Send + Sync>;

/// The globals of Lua that are removed. Redis keeps some of them, but no script of ours may use them.
const UNWANTED: &[&str] =
    &["dofile", "loadfile", "load", "loadstring", "print", "collectgarbage", "newproxy"];

/// As in Redis, a script that reads an unknown global or makes a new one fails.
const STRICT: &str = r#"
setmetatable(_G, {
    __index = function(_, name) error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2) end,
    __newindex = function(_, name) error("Script attempted to create global variable '" .. tostring(name) .. "'", 2) end,
})
"#;

/// A server like Redis in this process, with the part of Redis that the scripts need.
pub struct Memory {
    clock: Clock,
    interpreter: Mutex<Interpreter>,
    keyspace: Arc<Mutex<Keyspace>>,
}

struct Interpreter {
    lua: Lua,
    compiled: HashMap<String, Function>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("keys", &self.keyspace.locked().len()).finish_non_exhaustive()
    }
}

impl Memory {
    /// Begins empty. Its clock goes evenly, and follows the system's clock only after a correction of more than one
    /// second. Such a correction is a step, as of Redis's clock, and callers notice it.
    ///
    /// # Errors
    /// When the Lua interpreter cannot be made.
    pub fn new() -> Result<Self, RedisError> {
        let began = Instant::now();
        let offset = AtomicI64::new(Timestamp::now().as_microsecond());
        Self::with_clock(Box::new(move || {
            let elapsed = micros(began.elapsed());
            let right = Timestamp::now().as_microsecond() - elapsed;
            if (right - offset.load(Ordering::Relaxed)).abs() > 1_000_000 {
                offset.store(right, Ordering::Relaxed);
            }
            offset.load(Ordering::Relaxed) + elapsed
        }))
    }

    /// Begins empty, with a clock that returns us since 1970.
    ///
    /// # Errors
    /// When the Lua interpreter cannot be made.
    pub fn with_clock(clock: Clock) -> Result<Self, RedisError> {
        let keyspace = Arc::new(Mutex::new(Keyspace::default()));
        let lua = interpreter(&keyspace).map_err(|error| refusal(&error))?;
        let memory = Memory {
            clock,
            interpreter: Mutex::new(Interpreter { lua, compiled: HashMap::new() }),
            keyspace,
        };
        memory.new_server_id();
        Ok(memory)
    }

    /// Runs a script to its end, while no other script runs.
    ///
    /// # Errors
    /// When the script fails; the error has the script's own message.
    pub fn run(&self, source: &str, keys: &[String], args: &[Vec<u8>]) -> Result<Value, RedisError> {
        let mut interpreter = self.interpreter.locked();
        self.keyspace.locked().stop_clock((self.clock)());
        interpreter.run(source, keys, args).map_err(|error| refusal(&error))
    }

    /// Deletes all keys, as `FLUSHALL` does.
    pub fn flush(&self) {
        let _alone = self.interpreter.locked();
        self.keyspace.locked().clear();
    }

    /// Takes another `run_id`, as a server does that is started again.
    pub fn new_server_id(&self) {
        let _alone = self.interpreter.locked();
        self.keyspace.locked().run_id = (0..40).map(|_| fastrand::char('a'..='f')).collect();
    }
}

/// A copy of all keys, as in a snapshot file of Redis.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Snapshot(Keyspace);

/// For the property tests and the simulation.
#[doc(hidden)]
impl Memory {
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.keyspace.locked().clone())
    }

    /// Returns to a snapshot, as a server does that is started again from an old file.
    pub fn restore(&self, snapshot: &Snapshot) {
        *self.keyspace.locked() = snapshot.0.clone();
        self.new_server_id();
    }
}

impl Interpreter {
    fn run(&mut self, source: &str, keys: &[String], args: &[Vec<u8>]) -> mlua::Result<Value> {
        let function = if let Some(function) = self.compiled.get(source) {
            function.clone()
        } else {
            let function = self.lua.load(source).set_name("=user_script").into_function()?;
            self.compiled.insert(source.to_owned(), function.clone());
            function
        };
        let globals = self.lua.globals();
        let keys = keys.iter().map(|key| self.lua.create_string(key)).collect::<mlua::Result<Vec<_>>>()?;
        let args = args.iter().map(|arg| self.lua.create_string(arg)).collect::<mlua::Result<Vec<_>>>()?;
        globals.raw_set("KEYS", keys)?;
        globals.raw_set("ARGV", args)?;
        from_lua(function.call(())?)
    }
}

fn interpreter(keyspace: &Arc<Mutex<Keyspace>>) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::default())?;
    let globals = lua.globals();
    for name in UNWANTED {
        globals.raw_set(*name, LuaValue::Nil)?;
    }
    let keyspace = Arc::clone(keyspace);
    let call = lua.create_function(move |lua, arguments: MultiValue| {
        let arguments = arguments.iter().map(argument).collect::<mlua::Result<Vec<_>>>()?;
        let reply = commands::call(&mut keyspace.locked(), &arguments).map_err(mlua::Error::runtime)?;
        to_lua(lua, reply)
    })?;
    let redis = lua.create_table()?;
    redis.raw_set("call", call)?;
    globals.raw_set("redis", redis)?;
    let decode = lua.create_function(|lua, text: mlua::String| {
        let json = serde_json::from_slice(&text.as_bytes()).map_err(mlua::Error::runtime)?;
        from_json(lua, &json)
    })?;
    let cjson = lua.create_table()?;
    cjson.raw_set("decode", decode)?;
    globals.raw_set("cjson", cjson)?;
    lua.load(STRICT).exec()?;
    Ok(lua)
}

/// Converts one argument of a command from Lua, as Redis does.
fn argument(value: &LuaValue) -> mlua::Result<Vec<u8>> {
    match value {
        LuaValue::String(text) => Ok(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Ok(number.to_string().into_bytes()),
        LuaValue::Number(number) => Ok(keyspace::number_text(*number).into_bytes()),
        _ => Err(mlua::Error::runtime("Lua redis lib command arguments must be strings or integers")),
    }
}

/// Converts a command's reply for scripts. A missing value becomes `false`, because nil would end a table.
fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<LuaValue> {
    Ok(match reply {
        Reply::Nothing => LuaValue::Boolean(false),
        Reply::Number(number) => LuaValue::Integer(number),
        Reply::Text(text) => LuaValue::String(lua.create_string(text)?),
        Reply::Okay => LuaValue::Table(lua.create_table_from([("ok", "OK")])?),
        Reply::List(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

/// Converts JSON as `cjson.decode` does, whose numbers are all floating-point numbers. `null` becomes `false` here, and
/// a value of its own in Redis: scripts must check the type of what they read.
fn from_json(lua: &Lua, json: &serde_json::Value) -> mlua::Result<LuaValue> {
    use serde_json::Value as Json;
    Ok(match json {
        Json::Null => LuaValue::Boolean(false),
        Json::Bool(is_true) => LuaValue::Boolean(*is_true),
        Json::Number(number) => LuaValue::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => LuaValue::String(lua.create_string(text)?),
        Json::Array(items) => {
            let items = items.iter().map(|item| from_json(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            LuaValue::Table(lua.create_sequence_from(items)?)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, value) in fields {
                table.raw_set(name.as_str(), from_json(lua, value)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

/// Converts a script's reply as Redis does: numbers lose their fraction, and a table ends at its first nil.
fn from_lua(value: LuaValue) -> mlua::Result<Value> {
    Ok(match value {
        LuaValue::Integer(number) => Value::Int(number),
        #[expect(clippy::cast_possible_truncation, reason = "that is what Redis does")]
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Table(table) => from_table(&table)?,
        _ => Value::Nil,
    })
}

fn from_table(table: &Table) -> mlua::Result<Value> {
    if let LuaValue::String(error) = table.raw_get("err")? {
        return Err(mlua::Error::runtime(error.to_string_lossy()));
    }
    if let LuaValue::String(status) = table.raw_get("ok")? {
        return Ok(match status.to_string_lossy() {
            status if status == "OK" => Value::Okay,
            status => Value::SimpleString(status),
        });
    }
    let mut items = Vec::new();
    for at in 1.. {
        match table.raw_get(at)? {
            LuaValue::Nil => break,
            item => items.push(from_lua(item)?),
        }
    }
    Ok(Value::Array(items))
}

/// The error that Redis would answer for this failure of a script.
fn refusal(error: &mlua::Error) -> RedisError {
    let mut error = error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause.as_ref();
    }
    let said = match error {
        mlua::Error::RuntimeError(said) => said.clone(),
        other => other.to_string(),
    };
    let said = said.split("\nstack traceback:").next().unwrap_or_default();
    // The error of a command begins with its code, in capital letters.
    let (code, said) = match said.split_once(' ') {
        Some((code, rest)) if code.bytes().all(|b| b.is_ascii_uppercase()) => (code, rest),
        _ => ("ERR", said),
    };
    redis::make_extension_error(code.to_owned(), Some(said.to_owned()))
}

#[cfg(test)]
mod tests;

//! Reads the core time of each process from the kernel, in ticks of 10 ms.

use std::collections::BTreeMap;

use playground::PrivatePostgres;
use playground::stage::{NodeProcess, Stage};

const TICKS_A_SECOND: f64 = 100.0;
/// The name of the bank's thread in this process.
const BANK: &str = "pretend-bank";

/// The processes whose core time is read.
#[derive(Debug, Default)]
pub struct Watch {
    processes: Vec<(&'static str, u32)>,
    servers: Vec<(&'static str, u32)>,
}

/// Seconds of core time so far, by name.
pub type Spent = BTreeMap<&'static str, f64>;

impl Watch {
    pub fn stage(stage: &Stage, nodes: &[NodeProcess]) -> Watch {
        let mut watch = Watch::default().server("Postgres", stage.postgres.pid());
        watch = watch.process("Redis", stage.redis.pid());
        nodes.iter().fold(watch, |watch, node| watch.process("nodes", node.pid()))
    }

    pub fn postgres(postgres: &PrivatePostgres) -> Watch {
        Watch::default().server("Postgres", postgres.pid())
    }

    pub fn process(mut self, name: &'static str, pid: u32) -> Watch {
        self.processes.push((name, pid));
        self
    }

    /// Adds a process with all its children, also those that have ended.
    fn server(mut self, name: &'static str, pid: u32) -> Watch {
        self.servers.push((name, pid));
        self
    }

    pub fn read(&self) -> Spent {
        let mut spent = Spent::new();
        for (name, pid) in &self.processes {
            *spent.entry(name).or_default() += stat(&format!("/proc/{pid}/stat")).map_or(0.0, |s| s.own);
        }
        for (name, pid) in &self.servers {
            let own = stat(&format!("/proc/{pid}/stat")).map_or(0.0, |s| s.own + s.ended_children);
            *spent.entry(name).or_default() += own + children(*pid);
        }
        spent.insert("bank", bank());
        spent
    }

    /// The core time since `before`.
    pub fn since(&self, before: &Spent) -> Spent {
        let mut now = self.read();
        for (name, spent) in &mut now {
            *spent -= before.get(name).copied().unwrap_or(0.0);
        }
        now
    }
}

struct Stat {
    parent: u32,
    own: f64,
    ended_children: f64,
}

fn stat(path: &str) -> Option<Stat> {
    let text = std::fs::read_to_string(path).ok()?;
    // The name in brackets may contain anything, so the fields are counted from its end.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |nth: usize| fields.get(nth)?.parse::<f64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: (ticks(11)? + ticks(12)?) / TICKS_A_SECOND,
        ended_children: (ticks(13)? + ticks(14)?) / TICKS_A_SECOND,
    })
}

fn children(of: u32) -> f64 {
    let Ok(all) = std::fs::read_dir("/proc") else { return 0.0 };
    all.flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| stat(&entry.path().join("stat").display().to_string()))
        .filter(|stat| stat.parent == of)
        .map(|stat| stat.own)
        .sum()
}

fn bank() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    threads
        .flatten()
        .filter(|thread| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim_end() == BANK)
        })
        .filter_map(|thread| stat(&thread.path().join("stat").display().to_string()))
        .map(|stat| stat.own)
        .sum()
}

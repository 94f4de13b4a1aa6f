//! The cells: which server fails, how it fails, for which nodes, and how it is healed.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Postgres,
    Redis,
    Bank,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Down,
    Slow,
    HalfOpen,
    /// Packets are lost: connections stay silent, and no new one opens.
    Lost,
    ReadOnly,
    ConversationsEnded,
    ReplicaForAWhile,
    AnotherIsPrimary,
    FailOver,
    Rubbish,
    Resets,
    Unauthorised,
    /// No fault: what the machine itself costs at the same time.
    Nothing,
}

/// One fault of some servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub servers: &'static [Server],
    pub fault: Fault,
    /// Only the node that leads has the fault. The other node reaches all servers.
    pub alone: bool,
}

use Fault::{
    AnotherIsPrimary, ConversationsEnded, Down, FailOver, HalfOpen, Lost, Nothing, ReadOnly,
    ReplicaForAWhile, Resets, Rubbish, Slow, Unauthorised,
};

pub const POSTGRES: &[Server] = &[Server::Postgres];
pub const REDIS: &[Server] = &[Server::Redis];
const BOTH: &[Server] = &[Server::Postgres, Server::Redis];
pub const BANK: &[Server] = &[Server::Bank];
const NONE: &[Server] = &[];

pub const CELLS: [Cell; 26] = [
    all(POSTGRES, Down),
    all(POSTGRES, Slow),
    all(POSTGRES, HalfOpen),
    all(POSTGRES, ReadOnly),
    all(POSTGRES, ConversationsEnded),
    all(REDIS, Down),
    all(REDIS, Slow),
    all(REDIS, HalfOpen),
    all(REDIS, ReplicaForAWhile),
    all(REDIS, AnotherIsPrimary),
    all(REDIS, FailOver),
    all(BANK, Down),
    all(BANK, Slow),
    all(BANK, HalfOpen),
    all(BANK, Rubbish),
    all(BANK, Resets),
    all(BANK, Unauthorised),
    one_node(POSTGRES, Down),
    one_node(POSTGRES, Lost),
    one_node(REDIS, Down),
    one_node(REDIS, Lost),
    one_node(BOTH, Down),
    one_node(BOTH, Lost),
    one_node(BANK, Down),
    one_node(BANK, Lost),
    one_node(NONE, Nothing),
];

const fn all(servers: &'static [Server], fault: Fault) -> Cell {
    Cell { servers, fault, alone: false }
}

const fn one_node(servers: &'static [Server], fault: Fault) -> Cell {
    Cell { servers, fault, alone: true }
}

impl Cell {
    pub fn server(&self) -> &'static str {
        match self.servers {
            [Server::Postgres] => "Postgres",
            [Server::Redis] => "Redis",
            [Server::Bank] => "bank",
            [] => "none",
            _ => "Postgres and Redis",
        }
    }

    pub fn fault(&self) -> &'static str {
        match self.fault {
            Down if self.alone => "one node cut off, refused",
            Lost => "one node cut off, silent",
            Down => "down",
            Slow => "slow",
            HalfOpen => "half-open",
            ReadOnly => "read-only",
            ConversationsEnded => "conversations ended",
            ReplicaForAWhile => "replica for a while",
            AnotherIsPrimary => "replica, another is primary",
            FailOver => "fail-over by Sentinel",
            Rubbish => "rubbish",
            Resets => "resets",
            Unauthorised => "401, then resumed",
            Nothing => "nothing, as a control",
        }
    }

    /// Whether the fault lasts as long as one likes.
    pub fn lasts(&self) -> bool {
        !matches!(self.fault, ConversationsEnded | AnotherIsPrimary | FailOver)
    }

    /// Whether a rig can go through the fault only once: a fail-over uses up the replica.
    pub fn uses_up(&self) -> bool {
        self.fault == FailOver
    }

    /// How many doors to the bank the rig needs: one for all nodes, one for each, or none. A door on a busy machine
    /// delays requests, so a rig whose bank needs none has none.
    pub fn bank_doors(&self) -> usize {
        match (self.servers, self.fault) {
            (BANK, Slow | Unauthorised) => 0,
            (BANK, _) if self.alone => 2,
            (BANK, _) => 1,
            _ => 0,
        }
    }
}

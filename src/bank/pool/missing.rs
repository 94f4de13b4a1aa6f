//! How many connections those miss who reserve at one time. Each opens its own: attempts whose connections were too old at once
//! would otherwise wait for each other.

use super::{Shared, State};

/// What one caller misses, until it has a connection or gives up.
pub(super) struct Missing<'a> {
    pool: &'a Shared,
    connections: usize,
}

impl<'a> Missing<'a> {
    pub fn new(pool: &'a Shared) -> Self {
        Missing { pool, connections: 0 }
    }

    /// Notes what this caller misses now; answers what all of them miss.
    pub fn of_all(&mut self, state: &mut State, connections: usize) -> usize {
        state.missing = state.missing - self.connections + connections;
        self.connections = connections;
        state.missing
    }
}

impl Drop for Missing<'_> {
    fn drop(&mut self) {
        self.pool.state().missing -= self.connections;
    }
}

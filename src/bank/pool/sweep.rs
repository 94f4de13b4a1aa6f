//! Closes connections that were idle for too long, until none is idle. Otherwise a channel that seldom sends would keep
//! connections open on many nodes.

use std::sync::Arc;
use std::time::Instant;

use super::{Idle, Shared};

pub(super) async fn sweep(pool: Arc<Shared>) {
    loop {
        let pause = pool.state().idle_bound.shortest();
        tokio::time::sleep(pause).await;
        let mut state = pool.state();
        let now = Instant::now();
        let idle = std::mem::take(&mut state.idle);
        let (kept, old): (Vec<Idle>, Vec<Idle>) =
            idle.into_iter().partition(|idle| idle.is_usable(now, &state.idle_bound));
        state.idle = kept;
        for idle in old {
            pool.note_idle_end(&mut state, &idle);
        }
        if state.idle.is_empty() {
            state.is_swept = false;
            return;
        }
    }
}

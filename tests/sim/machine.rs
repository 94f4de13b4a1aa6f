//! The machine that plays: its settings, its workers and their runtimes.

/// A number of the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Two workers for each core: while one waits for its Postgres, the other plays.
pub fn workers() -> usize {
    2 * std::thread::available_parallelism().map_or(2, usize::from).min(8)
}

pub fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

//! `refundd run`: runs a node and handles its signals.
//!
//! The loops of the node are in `daemon`.

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::future::{Fuse, FusedFuture, FutureExt};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Interval, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::open::load_settled;
use crate::config::Config;
use crate::daemon::{Daemon, systemd};
use crate::logs::{self, Logs, chain};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End at once when standard input closes: for nodes that a demo or a test started
    #[arg(long, hide = true)]
    with_parent: bool,
}

pub(super) async fn run(args: Args, file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    raise_file_limit();
    let config = super::load(file.as_ref())?;
    let logs = logs::init(config.log.format, &config.log.level)?;
    if args.with_parent {
        std::thread::spawn(end_with_parent);
    }
    let mut ends = Ends::new()?;
    let hangup = signal(SignalKind::hangup()).context("failed to listen for SIGHUP")?;

    let starting = Daemon::start(config, || systemd::still_starting("waiting for Postgres"));
    let daemon = tokio::select! {
        daemon = starting => daemon?,
        name = ends.next() => {
            tracing::info!("Stopped by {name} before the node had started");
            return Ok(ExitCode::SUCCESS);
        }
    };
    systemd::ready(&format!("{} channels, HTTP on {}", daemon.config().channels.len(), daemon.address()));

    let period = systemd::watchdog_period();
    let mut watchdog = interval(period.unwrap_or(Duration::from_secs(10)));
    let reader = Reader { file, is_free: Arc::new(Semaphore::new(1)) };
    let reloads = async || reload(&daemon, &reader, &logs).await;
    let has_crashed = until_its_end(&daemon, &mut ends, hangup, reloads, &mut watchdog).await;

    systemd::stopping();
    let (began, longest) = (Instant::now(), daemon.longest_stop());
    let mut extension = interval(systemd::EXTEND_EVERY);
    let hurry = CancellationToken::new();
    let mut stopping = pin!(daemon.stop(hurry.clone()));
    loop {
        tokio::select! {
            _ = &mut stopping => break,
            name = ends.next() => {
                tracing::warn!("{name} received again: stopping now");
                hurry.cancel();
            }
            _ = watchdog.tick() => systemd::all_is_well(),
            _ = extension.tick(), if began.elapsed() < longest => systemd::still_stopping(),
        }
    }
    Ok(if has_crashed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Handles signals and the watchdog until the node shall stop. The answer says whether a loop crashed.
///
/// A reload may take longer than systemd waits for the watchdog, so both go on beside it. A SIGHUP that comes during a
/// reload waits for its end. The stop gives a reload up.
async fn until_its_end(
    daemon: &Daemon,
    ends: &mut Ends,
    mut hangup: Signal,
    reloads: impl AsyncFn(),
    watchdog: &mut Interval,
) -> bool {
    let mut reloading = pin!(Fuse::terminated());
    loop {
        tokio::select! {
            name = ends.next() => {
                tracing::info!("{name} received");
                return false;
            }
            _ = hangup.recv(), if reloading.is_terminated() => reloading.set(reloads().fuse()),
            () = &mut reloading => {}
            name = daemon.crashed() => {
                tracing::error!("Stopping, because the loop `{name}` crashed; systemd starts the node again");
                return true;
            }
            _ = watchdog.tick() => {
                let stuck = daemon.stuck();
                if stuck.is_empty() {
                    systemd::all_is_well();
                } else {
                    let stuck = stuck.join(", ");
                    tracing::error!(loops = stuck, "Stopped feeding the systemd watchdog: loop {stuck} is stuck");
                }
            }
        }
    }
}

/// Reads the file again, checks it whole, and swaps it at once. On any error the old configuration stays in force.
async fn reload(daemon: &Daemon, reader: &Reader, logs: &Logs) {
    let done = async {
        let config = reader.read().await?;
        let log_level = config.log.level.clone();
        let reloaded = daemon.reload(config).await?;
        logs.set_level(&log_level)?;
        anyhow::Ok(reloaded)
    };
    match done.await {
        Ok(reloaded) => {
            daemon.count_reload("taken_over");
            let list = |names: &[crate::refund::ChannelName]| {
                names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            tracing::info!(
                started = list(&reloaded.started),
                changed = list(&reloaded.changed),
                stopped = list(&reloaded.stopped),
                sections = reloaded.sections.join(", "),
                "Configuration read again and in force: {}",
                reloaded.changes(),
            );
            if !reloaded.needs_restart.is_empty() {
                tracing::warn!(
                    keys = reloaded.needs_restart.join(", "),
                    "These keys changed since the start and take effect only at a restart"
                );
            }
        }
        Err(error) => {
            daemon.count_reload("refused");
            tracing::error!(
                "The configuration was not taken over, the old one stays in force: {}",
                chain(error.as_ref())
            );
        }
    }
}

/// Reads the configuration for reloads. A mount that does not answer, or a pipe without a writer, may keep a read for ever. So a
/// thread reads, and the watchdog and the signals do not wait for it.
struct Reader {
    file: Option<PathBuf>,
    /// Taken while a thread reads.
    is_free: Arc<Semaphore>,
}

impl Reader {
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn read(&self) -> anyhow::Result<Config> {
        let Ok(permit) = Arc::clone(&self.is_free).try_acquire_owned() else {
            bail!(
                "an earlier reload still reads the configuration file or a file that it names; look whether one is on a mount that \
                 does not answer"
            );
        };
        let (answer, answered) = oneshot::channel();
        let file = self.file.clone();
        let thread = std::thread::Builder::new().name("reload".to_owned());
        let reads = move || {
            let config = load_settled(file.as_ref());
            drop(permit);
            // After the time below nobody waits for it any more.
            let _ = answer.send(config);
        };
        thread.spawn(reads).context("failed to start a thread that reads the configuration")?;
        match timeout(Self::PATIENCE, answered).await {
            Ok(config) => config.context("the thread that read the configuration crashed")?,
            Err(_) => bail!(
                "the configuration file, or a file that it names, was not read within {} s; look whether one is on a mount that does \
                 not answer",
                Self::PATIENCE.as_secs()
            ),
        }
    }
}

/// From now on, only root may read this process's memory and environment, and a crash leaves no core file: all of them
/// have the secrets.
pub(super) fn hide_memory() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .context("failed to hide this process's memory from other processes")?;
    }
    Ok(())
}

/// Raises the soft limit of open files to the hard limit. Each connection needs a file, and many systems give a process
/// 1024 unless it asks for more: callers alone could use them up, and none would be left for Postgres and the banks.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A sandbox may refuse. Then the limit that it set stays.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Ends this process when standard input closes: the parent process is gone.
fn end_with_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(1);
}

/// The signals that end a node.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> anyhow::Result<Self> {
        Ok(Ends {
            terminate: signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

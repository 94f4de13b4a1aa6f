//! Finds the addresses of a bank's host: one lookup at a time for each host, shared by all channels.
//!
//! The system's resolver blocks a thread, and nobody can stop it. While DNS hangs, each dial that gives up leaves a
//! thread behind, and every channel soon dials again. On tokio's own threads such lookups would fill the pool, and the
//! names of Postgres and Redis would wait behind them. So each lookup has a thread of its own, and a host whose lookup
//! still runs gets no second one. There are never more threads than hosts.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex};

use tokio::sync::watch;

use crate::lock::Lock;

/// The running lookups. Cheap to clone.
#[derive(Clone)]
pub(super) struct Lookups(Arc<Shared>);

struct Shared {
    resolve: Box<Resolve>,
    running: Mutex<HashMap<String, Answer>>,
}

/// Blocks its thread until the addresses of a host are known.
type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// `None` until the resolver answers.
type Answer = watch::Receiver<Option<Result<Vec<IpAddr>, Arc<io::Error>>>>;

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}

impl Lookups {
    /// The lookups of this process, by the system's resolver. The system has one resolver for all channels as well.
    pub fn of_process() -> &'static Lookups {
        static LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| {
            Lookups::by(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
        });
        &LOOKUPS
    }

    fn by(resolve: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Lookups(Arc::new(Shared { resolve: Box::new(resolve), running: Mutex::default() }))
    }

    /// The addresses of the host, in the resolver's order. The caller limits the time.
    pub async fn find(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let mut answer = self.join(host)?;
        let found = answer.wait_for(Option::is_some).await;
        match found.as_ref().map(|found| found.as_ref()) {
            Ok(Some(Ok(addresses))) => Ok(addresses.clone()),
            Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), error.to_string())),
            Ok(None) | Err(_) => Err(io::Error::other("the resolver gave no answer")),
        }
    }

    /// The answer of the running lookup of the host, or of one that starts now.
    fn join(&self, host: &str) -> io::Result<Answer> {
        let mut running = self.0.running.locked();
        if let Some(answer) = running.get(host) {
            return Ok(answer.clone());
        }
        let (sender, answer) = watch::channel(None);
        let (lookups, name) = (self.clone(), host.to_owned());
        std::thread::Builder::new().name("lookup".to_owned()).spawn(move || {
            let found = (lookups.0.resolve)(&name).map_err(Arc::new);
            lookups.0.running.locked().remove(&name);
            sender.send_replace(Some(found));
        })?;
        running.insert(host.to_owned(), answer.clone());
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_resolver_that_hangs_keeps_one_thread_for_each_host_and_answers_all_who_wait() {
        let (release, released) = mpsc::channel::<()>();
        let (released, started) = (Mutex::new(released), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&started);
        let lookups = Lookups::by(move |host| {
            if host == "good.example" {
                return Ok(vec![[192, 0, 2, 2].into()]);
            }
            count.fetch_add(1, Ordering::Relaxed);
            released.locked().recv().ok();
            Ok(vec![[192, 0, 2, 1].into()])
        });
        for _ in 0..50 {
            let gave_up = tokio::time::timeout(Duration::from_millis(2), lookups.find("hangs.example")).await;
            assert!(gave_up.is_err());
        }
        assert_eq!(started.load(Ordering::Relaxed), 1);
        let other = tokio::time::timeout(Duration::from_secs(5), lookups.find("good.example")).await;
        assert_eq!(other.unwrap().unwrap(), [IpAddr::from([192, 0, 2, 2])], "another host does not wait");
        let (one, two, ()) =
            tokio::join!(lookups.find("hangs.example"), lookups.find("hangs.example"), async {
                release.send(()).unwrap();
            });
        assert_eq!((one.unwrap(), two.unwrap()), (vec![[192, 0, 2, 1].into()], vec![[192, 0, 2, 1].into()]));
        assert_eq!(started.load(Ordering::Relaxed), 1);
        drop(release);
        lookups.find("hangs.example").await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 2, "an answer is not kept for later dials");
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver_and_a_failure_keeps_its_reason() {
        let lookups = Lookups::by(|_| Err(io::Error::other("no such name")));
        assert_eq!(lookups.find("::1").await.unwrap(), ["::1".parse::<IpAddr>().unwrap()]);
        assert_eq!(lookups.find("nowhere.example").await.unwrap_err().to_string(), "no such name");
    }
}

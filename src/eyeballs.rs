//! Connects to the first address of a host that answers.
//!
//! A name may have several addresses, and the first one may be silent. A connection to it would take the whole time
//! that a connection may take, each time. So the next address is tried after a quarter of a second, beside the one before
//! (Happy Eyeballs, RFC 8305, section 5).
//!
//! The race ends with TCP. An address that accepts connections and then hangs would win each time. So a caller can keep
//! the addresses that failed later ([`Avoided`]), and the race begins with the others.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::io::Errno;
use tokio::net::TcpStream;

use crate::lock::Lock;

/// The pause before the next address is tried too: the RFC's default, and at most a quarter of the time that a connection may take.
pub const NEXT_AFTER: Duration = Duration::from_millis(250);
/// The pause before an avoided address is tried too, but at most a quarter of the time that a connection may take. A distant address
/// needs this time to answer.
const AVOIDED_AFTER: Duration = Duration::from_secs(1);

/// The addresses whose connections failed after TCP was open, or brought no answer.
#[derive(Debug, Default)]
pub struct Avoided(Mutex<HashMap<SocketAddr, Instant>>);

impl Avoided {
    /// Then the address gets its place back. Until then it costs nothing while another address works.
    const REMEMBERED: Duration = Duration::from_hours(1);

    /// A connection to this address was open, and failed before it could be used or brought no answer.
    pub fn failed(&self, address: SocketAddr) {
        let mut failed = self.0.locked();
        failed.retain(|_, at| at.elapsed() < Self::REMEMBERED);
        failed.insert(address, Instant::now());
    }

    fn failed_at(&self, address: SocketAddr) -> Option<Instant> {
        self.0.locked().get(&address).copied().filter(|at| at.elapsed() < Self::REMEMBERED)
    }
}

/// Connects to one of the addresses, for which the caller waits `limit`; also returns how long its own try took. The avoided addresses
/// come last, and among them the one that failed last.
///
/// # Errors
/// When every address failed: the failure that says most, behind its address if there are several.
pub async fn connect_avoiding(
    addresses: impl IntoIterator<Item = SocketAddr>,
    avoided: &Avoided,
    limit: Duration,
) -> io::Result<(TcpStream, Duration)> {
    let (mut good, mut failed) = (Vec::new(), Vec::new());
    for address in addresses {
        match avoided.failed_at(address) {
            None => good.push(address),
            Some(at) => failed.push((at, address)),
        }
    }
    failed.sort_unstable();
    let pause = if good.is_empty() { NEXT_AFTER } else { AVOIDED_AFTER }.min(limit / 4);
    let failed = failed.into_iter().map(|(_, address)| (address, pause));
    let next_after = NEXT_AFTER.min(limit / 4);
    race(alternating(good).into_iter().map(|address| (address, next_after)).chain(failed)).await
}

/// Connects to one of the addresses; also returns how long its own try took.
///
/// # Errors
/// When every address failed: the failure that says most, behind its address if there are several.
pub async fn connect(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<(TcpStream, Duration)> {
    connect_avoiding(addresses, &Avoided::default(), Duration::MAX).await
}

/// Tries each address after its pause, or at once after a failure.
async fn race(addresses: impl Iterator<Item = (SocketAddr, Duration)>) -> io::Result<(TcpStream, Duration)> {
    let mut left = addresses.peekable();
    let mut running = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        if let Some((address, _)) = left.next() {
            running.push(async move {
                let began = Instant::now();
                let connected = TcpStream::connect(address).await;
                connected.map(|stream| (stream, began.elapsed())).map_err(|error| (address, error))
            });
        }
        let pause = left.peek().map(|(_, pause)| *pause);
        tokio::select! {
            tried = running.next() => match tried {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(failure)) => failures.push(failure),
                None => return Err(telling(failures)),
            },
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

/// The first failure that does not only say that this host lacks the way to the address, such as a whole family.
fn telling(mut failures: Vec<(SocketAddr, io::Error)>) -> io::Error {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    let says_little = |error: &io::Error| match error.kind() {
        NetworkUnreachable | AddrNotAvailable => 2,
        _ if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => 2,
        HostUnreachable => 1,
        _ => 0,
    };
    // The first of those that say most.
    let Some(most) = (0..failures.len()).min_by_key(|nth| says_little(&failures[*nth].1)) else {
        return io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    };
    let are_several = failures.len() > 1;
    let (address, error) = failures.swap_remove(most);
    if are_several { io::Error::new(error.kind(), format!("{}: {error}", address.ip())) } else { error }
}

/// The addresses in the resolver's order, but with the two families by turns (section 4): a family that this host
/// cannot reach then costs one try only.
fn alternating(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let addresses: Vec<SocketAddr> = addresses.into_iter().collect();
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (same, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.is_ipv6() == first);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut sorted = Vec::new();
    loop {
        match (same.next(), other.next()) {
            (None, None) => return sorted,
            (one, two) => sorted.extend(one.into_iter().chain(two)),
        }
    }
}

#[cfg(test)]
mod tests {
    use playground::Silent;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_silent_first_address_costs_a_quarter_of_a_second() {
        let silent = Silent::open().await.unwrap();
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let began = Instant::now();
        let (stream, took) = connect([silent.address, good.local_addr().unwrap()]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good.local_addr().unwrap());
        assert!(began.elapsed() >= NEXT_AFTER && began.elapsed() < NEXT_AFTER * 4, "{:?}", began.elapsed());
        assert!(took < NEXT_AFTER, "its own try alone is measured: {took:?}");
    }

    #[tokio::test]
    async fn after_a_refusal_the_next_address_is_tried_at_once_and_a_refusal_is_reported() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let began = Instant::now();
        connect([closed, good.local_addr().unwrap()]).await.unwrap();
        assert!(began.elapsed() < NEXT_AFTER, "{:?}", began.elapsed());
        let error = connect([closed, closed]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().starts_with("127.0.0.1: Connection refused"), "{error}");
        let alone = connect([closed]).await.unwrap_err().to_string();
        assert!(alone.starts_with("Connection refused"), "{alone}");
        assert_eq!(connect([]).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn an_address_that_failed_behind_tcp_is_tried_after_the_others_and_still_tried() {
        let (one, two) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let (first, second) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        let avoided = Avoided::default();
        let reached = async |addresses: [SocketAddr; 2]| {
            connect_avoiding(addresses, &avoided, Duration::MAX).await.unwrap().0.peer_addr().unwrap()
        };
        assert_eq!(reached([first, second]).await, first);
        avoided.failed(first);
        assert_eq!(reached([first, second]).await, second);
        avoided.failed(second);
        assert_eq!(reached([second, first]).await, first, "the one that failed last comes last");
        drop(one);
        assert_eq!(reached([first, second]).await, second, "the other one does not even accept");
    }

    #[test]
    fn a_family_that_this_host_lacks_hides_no_failure_of_the_other() {
        use io::ErrorKind::{
            AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut,
        };
        let told = |kinds: &[io::ErrorKind]| {
            let addresses = ["[2001:db8::1]:443", "192.0.2.1:443", "192.0.2.2:443"];
            let failures = addresses.iter().zip(kinds);
            let failures = failures
                .map(|(address, kind)| (address.parse::<SocketAddr>().unwrap(), io::Error::from(*kind)));
            let error = telling(failures.collect());
            (error.kind(), error.to_string().split(": ").next().unwrap().to_owned())
        };
        for (kinds, kind, address) in [
            ([NetworkUnreachable, ConnectionRefused, TimedOut], ConnectionRefused, "192.0.2.1"),
            ([TimedOut, ConnectionRefused, NetworkUnreachable], TimedOut, "2001:db8::1"),
            ([ConnectionRefused, AddrNotAvailable, NetworkUnreachable], ConnectionRefused, "2001:db8::1"),
            ([NetworkUnreachable, AddrNotAvailable, NetworkUnreachable], NetworkUnreachable, "2001:db8::1"),
            ([NetworkUnreachable, HostUnreachable, NetworkUnreachable], HostUnreachable, "192.0.2.1"),
            ([HostUnreachable, TimedOut, NetworkUnreachable], TimedOut, "192.0.2.1"),
        ] {
            assert_eq!(told(&kinds), (kind, address.to_owned()), "{kinds:?}");
        }
    }

    #[test]
    fn the_two_families_take_turns_and_keep_the_resolvers_order() {
        let sorted = alternating(
            ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"].map(|a| a.parse().unwrap()),
        );
        let sorted: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
    }
}

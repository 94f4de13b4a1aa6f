//! Connects to the first address of a host that answers.
//!
//! A name may have several addresses, and the first one may be silent. A connection to it would take the whole time
//! that a connection may take, each time. So the next address is tried after a quarter of a second, beside the one before
//! (Happy Eyeballs, RFC 8305, section 5).

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// The pause before the next address is tried too: the RFC's default.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Connects to one of the addresses; also returns how long its own try took.
///
/// # Errors
/// When every address failed: the last failure.
pub async fn connect(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<(TcpStream, Duration)> {
    let mut left = alternating(addresses).into_iter();
    let mut running = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = left.next() {
            running.push(async move {
                let began = Instant::now();
                TcpStream::connect(address).await.map(|stream| (stream, began.elapsed()))
            });
        }
        tokio::select! {
            tried = running.next() => match tried {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => last = error,
                None => return Err(last),
            },
            () = tokio::time::sleep(NEXT_AFTER), if left.len() > 0 => {}
        }
    }
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
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// An address at which nobody answers: the queue of its listener is full. Keep the sockets.
    async fn silent() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(connected) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            queued.push(connected.unwrap());
        }
        (address, listener, queued)
    }

    #[tokio::test]
    async fn a_silent_first_address_costs_a_quarter_of_a_second() {
        let (silent, _listener, _queued) = silent().await;
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let began = Instant::now();
        let (stream, took) = connect([silent, good.local_addr().unwrap()]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good.local_addr().unwrap());
        assert!(began.elapsed() >= NEXT_AFTER && began.elapsed() < NEXT_AFTER * 4, "{:?}", began.elapsed());
        assert!(took < NEXT_AFTER, "its own try alone is measured: {took:?}");
    }

    #[tokio::test]
    async fn after_a_refusal_the_next_address_is_tried_at_once_and_the_last_refusal_is_reported() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let began = Instant::now();
        connect([closed, good.local_addr().unwrap()]).await.unwrap();
        assert!(began.elapsed() < NEXT_AFTER, "{:?}", began.elapsed());
        let error = connect([closed, closed]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect([]).await.unwrap_err().kind(), io::ErrorKind::NotFound);
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

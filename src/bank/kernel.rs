//! Reads from the kernel the round-trip time of one connection and how much it varies. The kernel measures both at
//! every acknowledgement. And tells the kernel how long to try to deliver bytes.
//!
//! Reading `TCP_INFO` from a socket needs `unsafe`, so this file does not do that. It names the connection's two
//! addresses to the kernel through `sock_diag`, as `ss -i` does. The kernel answers with the same numbers, and the
//! exchange is plain bytes over a socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// The round-trip time that the kernel measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    pub mean: Duration,
    pub variation: Duration,
}

/// The round-trip time of a connection. `None` if the kernel gives no answer: the connection is gone, the system is
/// not Linux, or a service manager forbids `AF_NETLINK`.
#[cfg(target_os = "linux")]
pub fn round_trip(ends: Ends) -> Option<RoundTrip> {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::NETLINK;
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)).ok()?;
    rustix::net::send(&socket, &message::question(ends)?, SendFlags::empty()).ok()?;
    // The kernel answers before `send` returns.
    let mut answer = [0; 4096];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty()).ok()?;
    message::answer(answer.get(..length)?)
}

#[cfg(not(target_os = "linux"))]
pub fn round_trip(_: Ends) -> Option<RoundTrip> {
    None
}

/// Lets the kernel end the connection, and drop its bytes, once the other end has not acknowledged bytes, or has taken none,
/// for this long (`TCP_USER_TIMEOUT`). Otherwise it sends them again for up to 15 minutes.
#[cfg(target_os = "linux")]
pub fn drop_unacknowledged_after(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let most = i32::MAX.unsigned_abs();
    let ms = u32::try_from(limit.as_millis()).unwrap_or(most).clamp(1, most);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, ms)?)
}

#[cfg(not(target_os = "linux"))]
pub fn drop_unacknowledged_after(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// The bytes of the question and of the answer, as in `linux/inet_diag.h` and `linux/tcp.h`.
#[cfg(target_os = "linux")]
mod message {
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    use super::{Ends, RoundTrip};

    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    const TCP: u8 = 6;
    /// The attribute that holds `tcp_info`.
    const INFO: u16 = 2;
    const NLMSG_HEADER: usize = 16;
    const INET_DIAG_MSG: usize = 72;
    const ESTABLISHED: u32 = 1 << 1;
    const RTT_AT: usize = 68;
    const VARIATION_AT: usize = 72;

    pub fn question(Ends { local, peer }: Ends) -> Option<Vec<u8>> {
        let family = match (local, peer) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) => AF_INET,
            (SocketAddr::V6(_), SocketAddr::V6(_)) => AF_INET6,
            (SocketAddr::V4(_), SocketAddr::V6(_)) | (SocketAddr::V6(_), SocketAddr::V4(_)) => return None,
        };
        let address = |at: SocketAddr| {
            let mut bytes = [0; 16];
            match at.ip() {
                IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => bytes = ip.octets(),
            }
            bytes
        };
        let mut bytes = Vec::with_capacity(72);
        bytes.extend(72u32.to_ne_bytes());
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend(REQUEST.to_ne_bytes());
        bytes.extend([0; 8]); // sequence and port: the kernel sends the only answer on this socket
        bytes.extend([family, TCP, 1 << (INFO - 1), 0]);
        bytes.extend(ESTABLISHED.to_ne_bytes());
        bytes.extend(local.port().to_be_bytes());
        bytes.extend(peer.port().to_be_bytes());
        bytes.extend(address(local));
        bytes.extend(address(peer));
        bytes.extend([0; 4]); // any interface
        bytes.extend([0xff; 8]); // any cookie
        Some(bytes)
    }

    pub fn answer(bytes: &[u8]) -> Option<RoundTrip> {
        let u16_at = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        if u16_at(4)? != SOCK_DIAG_BY_FAMILY {
            return None;
        }
        let mut at = NLMSG_HEADER + INET_DIAG_MSG;
        loop {
            let (length, kind) = (usize::from(u16_at(at)?), u16_at(at + 2)?);
            if kind == INFO {
                let micros = |place: usize| {
                    let from = at + 4 + place;
                    let number = u32::from_ne_bytes(bytes.get(from..from + 4)?.try_into().ok()?);
                    Some(Duration::from_micros(number.into()))
                };
                let measured = RoundTrip { mean: micros(RTT_AT)?, variation: micros(VARIATION_AT)? };
                // For a closed connection the kernel may answer about the listening socket or about a closed
                // connection that it still remembers. Both have a mean of zero.
                return Some(measured).filter(|measured| !measured.mean.is_zero());
            }
            at += length.max(4).next_multiple_of(4);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_tells_the_round_trip_of_a_connection_of_ours() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            ours.write_all(b"?").unwrap();
            theirs.read_exact(&mut [0]).unwrap();
            let ends = Ends { local: ours.local_addr().unwrap(), peer: ours.peer_addr().unwrap() };
            let measured = round_trip(ends).unwrap();
            assert!(measured.mean > Duration::ZERO && measured.mean < Duration::from_secs(1), "{measured:?}");
            drop(ours);
            let gone = Ends { local: ends.peer, peer: "127.0.0.1:1".parse().unwrap() };
            assert_eq!(round_trip(gone), None);
        }
    }
}

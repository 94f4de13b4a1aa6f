//! Counts the open connections of each address, and refuses one above the bound.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::lock::Lock;

/// The open connections of one listener, by address.
#[derive(Debug)]
pub(super) struct AddressConnections {
    /// The most of one address; `None` for no bound.
    most: Option<u32>,
    open: Mutex<HashMap<IpAddr, u32>>,
}

impl AddressConnections {
    pub(super) fn new(most: Option<u32>) -> Arc<Self> {
        Arc::new(AddressConnections { most, open: Mutex::default() })
    }

    /// Counts a connection from this address until the value is dropped; `None` above the bound.
    pub(super) fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<CountedConnection> {
        let address = counted_as(ip);
        let mut all = self.open.locked();
        let open = all.entry(address).or_default();
        if self.most.is_some_and(|most| *open >= most) {
            return None;
        }
        *open += 1;
        Some(CountedConnection { address, all: Arc::clone(self) })
    }
}

/// One counted connection.
#[derive(Debug)]
pub(super) struct CountedConnection {
    address: IpAddr,
    all: Arc<AddressConnections>,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut all = self.all.open.locked();
        if let Some(open) = all.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// One host may use a whole /64 network of IPv6, so such a network counts as one address.
fn counted_as(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_as_many_connections_as_the_bound_says() {
        let connections = AddressConnections::new(Some(2));
        let (first, _second) =
            (connections.admit(ip("10.0.0.1")).unwrap(), connections.admit(ip("::ffff:10.0.0.1")).unwrap());
        assert!(connections.admit(ip("10.0.0.1")).is_none());
        assert!(connections.admit(ip("10.0.0.2")).is_some());
        drop(first);
        assert!(connections.admit(ip("10.0.0.1")).is_some());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_forgotten_ones_cost_nothing() {
        let connections = AddressConnections::new(Some(1));
        let connection = connections.admit(ip("2001:db8::1")).unwrap();
        assert!(connections.admit(ip("2001:db8::ffff:2")).is_none());
        assert!(connections.admit(ip("2001:db8:0:1::1")).is_some());
        drop(connection);
        assert!(connections.open.locked().is_empty());
    }
}

//! The addresses that a channel may connect to: what its file names, and otherwise only public ones.
//!
//! The answer of DNS is checked, not the name. So a name that someone leads to a private address is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::LazyLock;

/// A range of addresses, such as `203.0.113.0/24`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

/// The ranges that a channel's file names; with none, all public addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(pub Vec<Network>);

/// Why an address is not used, as the second half of a sentence that begins with the address.
pub type WhyNot = &'static str;

/// What is not public, with its kind: the special ranges of RFC 6890 and its successors.
const SPECIAL: [(&str, WhyNot); 29] = [
    ("0.0.0.0/8", "is no address of a host"),
    ("10.0.0.0/8", "is private"),
    ("100.64.0.0/10", "is private to a provider"),
    ("127.0.0.0/8", "is this host"),
    ("169.254.0.0/16", "is link-local"),
    ("172.16.0.0/12", "is private"),
    ("192.0.0.0/24", "is for special use"),
    ("192.0.2.0/24", "is for examples"),
    ("192.88.99.0/24", "is for special use"),
    ("192.168.0.0/16", "is private"),
    ("198.18.0.0/15", "is for tests"),
    ("198.51.100.0/24", "is for examples"),
    ("203.0.113.0/24", "is for examples"),
    ("224.0.0.0/4", "is no address of a host"),
    ("240.0.0.0/4", "is no address of a host"),
    ("::/128", "is no address of a host"),
    ("::1/128", "is this host"),
    ("::/96", "is for special use"),
    ("64:ff9b:1::/48", "is private"),
    ("100::/64", "is no address of a host"),
    ("2001::/23", "is for special use"),
    ("2001:db8::/32", "is for examples"),
    ("2002::/16", "is for special use"),
    ("3fff::/20", "is for examples"),
    ("5f00::/16", "is for special use"),
    ("fc00::/7", "is private"),
    ("fe80::/10", "is link-local"),
    ("fec0::/10", "is private"),
    ("ff00::/8", "is no address of a host"),
];

/// Addresses of IPv4 in a network of IPv6 (NAT64, RFC 6052).
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

impl Networks {
    /// Why the channel does not connect to this address; `None` if it may. `host` is the host in the URL: an address, or
    /// `localhost`, names itself.
    #[must_use]
    pub fn refusal(&self, host: &str, ip: IpAddr) -> Option<WhyNot> {
        let ip = ip.to_canonical();
        if !self.0.is_empty() {
            let is_named = self.0.iter().any(|network| network.contains(ip));
            return (!is_named).then_some("is not in `addresses`");
        }
        let names_itself = host.parse().is_ok_and(|named: IpAddr| named.to_canonical() == ip);
        if names_itself || (host.eq_ignore_ascii_case("localhost") && ip.is_loopback()) {
            return None;
        }
        special(ip)
    }
}

/// Why an address is not public; `None` if it is.
fn special(ip: IpAddr) -> Option<WhyNot> {
    static RANGES: LazyLock<Vec<(Network, WhyNot)>> = LazyLock::new(|| {
        SPECIAL.iter().filter_map(|(network, why)| Some((network.parse().ok()?, *why))).collect()
    });
    if let IpAddr::V6(six) = ip
        && six.segments()[..6] == NAT64
    {
        let [.., a, b, c, d] = six.octets();
        return special(Ipv4Addr::new(a, b, c, d).into());
    }
    RANGES.iter().find(|(network, _)| network.contains(ip)).map(|(_, why)| *why)
}

impl Network {
    /// Whether the address is in the range. An address of IPv4 that is written as one of IPv6 counts as one of IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.first, ip.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                first.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                first.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// A text is no range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a range of addresses, such as \"203.0.113.0/24\" or \"2001:db8::/32\", or one address")]
pub struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (first, bits) = match text.split_once('/') {
            Some((first, bits)) => (first, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().map_err(|_| NoNetwork)?;
        let most = match first {
            IpAddr::V4(_) => Ipv4Addr::BITS,
            IpAddr::V6(_) => Ipv6Addr::BITS,
        };
        let is_number = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => most,
            Some(bits) => Some(bits).filter(is_number).and_then(|bits| bits.parse().ok()).ok_or(NoNetwork)?,
        };
        if bits > most {
            return Err(NoNetwork);
        }
        // Addresses are compared as those of IPv4 that they are. A range in the longer form must be one of IPv4, too.
        let canonical = first.to_canonical();
        let bits = if canonical == first {
            bits
        } else {
            bits.checked_sub(Ipv6Addr::BITS - Ipv4Addr::BITS).ok_or(NoNetwork)?
        };
        Ok(Network { first: canonical, bits: u8::try_from(bits).map_err(|_| NoNetwork)? })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(networks: &[&str], host: &str, ip: &str) -> Option<WhyNot> {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        Networks(networks).refusal(host, ip.parse().unwrap())
    }

    #[test]
    fn every_special_range_can_be_read() {
        assert!(SPECIAL.iter().all(|(network, _)| network.parse::<Network>().is_ok()));
    }

    #[test]
    fn a_name_reaches_public_addresses_only() {
        for ip in
            ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
        {
            assert_eq!(refusal(&[], "bank.example", ip), None, "{ip}");
        }
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "fc00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(refusal(&[], "bank.example", ip).is_some(), "{ip}");
        }
    }

    #[test]
    fn an_address_in_the_url_and_localhost_name_themselves_and_nothing_else() {
        assert_eq!(refusal(&[], "127.0.0.1", "127.0.0.1"), None);
        assert_eq!(refusal(&[], "10.0.0.7", "10.0.0.7"), None);
        assert_eq!(refusal(&[], "::1", "::1"), None);
        assert_eq!(refusal(&[], "localhost", "::1"), None);
        assert_eq!(refusal(&[], "LocalHost", "127.0.0.1"), None);
        assert_eq!(refusal(&[], "localhost", "10.0.0.1"), Some("is private"));
        assert_eq!(refusal(&[], "10.0.0.7", "10.0.0.8"), Some("is private"));
    }

    #[test]
    fn named_ranges_let_in_what_they_name_and_nothing_else() {
        let not_named = Some("is not in `addresses`");
        assert_eq!(refusal(&["10.0.0.0/8"], "bank.internal", "10.9.9.9"), None);
        assert_eq!(refusal(&["10.0.0.0/8"], "bank.internal", "::ffff:10.9.9.9"), None);
        assert_eq!(refusal(&["10.0.0.0/8"], "bank.internal", "11.0.0.1"), not_named);
        assert_eq!(refusal(&["10.0.0.0/8"], "127.0.0.1", "127.0.0.1"), not_named);
        assert_eq!(refusal(&["10.0.0.0/8", "fd00::/8"], "b", "fd12::1"), None);
        assert_eq!(refusal(&["0.0.0.0/0"], "b", "1.2.3.4"), None);
        assert_eq!(refusal(&["0.0.0.0/0"], "b", "::1"), not_named);
        assert_eq!(refusal(&["203.0.113.7"], "b", "203.0.113.7"), None);
        assert_eq!(refusal(&["203.0.113.7"], "b", "203.0.113.8"), not_named);
    }

    #[test]
    fn a_range_of_ipv4_that_is_written_as_one_of_ipv6_is_the_range_of_ipv4() {
        for (written, range) in [
            ("::ffff:203.0.113.0/120", "203.0.113.0/24"),
            ("::ffff:203.0.113.7", "203.0.113.7/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(written.parse::<Network>().unwrap().to_string(), range, "{written}");
            assert_eq!(refusal(&[written], "b", "203.0.113.7"), None, "{written}");
        }
        assert_eq!(refusal(&["::ffff:203.0.113.0/120"], "b", "203.0.114.7"), Some("is not in `addresses`"));
    }

    #[test]
    fn a_text_that_is_no_range_is_refused() {
        for text in [
            "",
            "bank",
            "10.0.0.0/33",
            "::/129",
            "::ffff:10.0.0.0/8",
            "::ffff:10.0.0.0/95",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NoNetwork), "{text}");
        }
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
    }
}

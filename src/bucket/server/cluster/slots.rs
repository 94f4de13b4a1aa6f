//! Computes the slot of a key, and reads the answers of nodes that say which master has which slot.

use redis::Value;

use crate::bucket::server::sentinel::announced;

/// The number of slots of a cluster.
pub(in crate::bucket::server) const SLOTS: u16 = 16384;

/// The slot of a key. If the key's first braces are not empty, only the text in them counts.
pub(in crate::bucket::server) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, which Redis hashes keys with.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// A range of slots that one master has: the first slot, the last slot, and the master as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::bucket::server) struct Range {
    pub first: u16,
    pub last: u16,
    pub master: String,
}

/// Reads the answer of the node at `node` to `CLUSTER SLOTS`; `None` when it does not have that form, when it names slots
/// that do not exist, or more than there are.
pub(in crate::bucket::server) fn read(answer: &Value, node: &str) -> Option<Vec<Range>> {
    let list = |value: &Value| match value {
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let number = |value: &Value| redis::from_redis_value_ref::<u16>(value).ok();
    let mut left = u32::from(SLOTS);
    list(answer)?
        .iter()
        .map(|range| {
            let range = list(range)?;
            let master = list(range.get(2)?)?;
            // A node that does not know its own address leaves it out. Then `node` is its address.
            let host = redis::from_redis_value_ref::<Option<String>>(master.first()?).ok()?;
            let master = place(host.as_deref().unwrap_or_default(), number(master.get(1)?)?, node)?;
            let (first, last) = (number(range.first()?)?, number(range.get(1)?)?);
            left = left.checked_sub(u32::from(last.checked_sub(first)?) + 1)?;
            (last < SLOTS).then_some(Range { first, last, master })
        })
        .collect()
}

/// The master that `MOVED` or `ASK` of the node at `node` names, as `host:port`.
pub(in crate::bucket::server) fn redirect(to: &str, node: &str) -> Option<String> {
    let (host, port) = to.rsplit_once(':')?;
    place(host, port.parse().ok()?, node)
}

fn place(host: &str, port: u16, node: &str) -> Option<String> {
    let own = node.rsplit_once(':').map_or(node, |(host, _)| host);
    match host.trim_matches(['[', ']']) {
        "" | "?" => Some(format!("{own}:{port}")),
        host => announced(host, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fall_in_the_slots_that_redis_puts_them_in() {
        // The slots that CLUSTER KEYSLOT gives.
        assert_eq!(slot_of("123456789"), 12739);
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of("refundd:{foo}:acme:bucket"), 12182);
        assert_eq!(slot_of("{}foo"), crc16(b"{}foo") % SLOTS, "empty braces are no tag");
    }

    #[test]
    fn a_node_without_an_address_is_the_node_that_answered() {
        assert_eq!(redirect(":7001", "10.0.0.1:7000").unwrap(), "10.0.0.1:7001");
        assert_eq!(redirect("?:7001", "[::1]:7000").unwrap(), "[::1]:7001");
        assert_eq!(redirect("::2:7001", "h:1").unwrap(), "[::2]:7001");
        assert_eq!(redirect("10.0.0.2:7001", "h:1").unwrap(), "10.0.0.2:7001");
        let node = |host| Value::Array(vec![host, Value::Int(7002), Value::BulkString(b"id".to_vec())]);
        let range = |host| Value::Array(vec![Value::Int(0), Value::Int(100), node(host)]);
        let answer = Value::Array(vec![range(Value::Nil), range(Value::BulkString(b"h2".to_vec()))]);
        let ranges = read(&answer, "h:1").unwrap();
        assert_eq!(ranges[0], Range { first: 0, last: 100, master: "h:7002".to_owned() });
        assert_eq!(ranges[1].master, "h2:7002");
        assert_eq!(read(&Value::Okay, "h:1"), None);
    }
}

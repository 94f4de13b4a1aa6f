//! The trace that a refund belongs to, as W3C Trace Context writes it in the header `traceparent`:
//! <https://www.w3.org/TR/trace-context/>.
//!
//! It decides nothing. A bad value is ignored and never refuses a refund, as the standard demands.

use std::fmt;

/// Names a trace, and one span in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: u128,
    /// The span of the caller.
    pub span_id: u64,
    /// Whether the caller may have recorded its span.
    pub is_sampled: bool,
}

impl TraceParent {
    /// The header that carries it.
    pub const HEADER: &'static str = "traceparent";
    /// The characters of version 00. A later version may have more, after a dash.
    const LENGTH: usize = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".len();

    /// Reads a value of any version; `None` for a value that the standard calls invalid.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (known, more) = text.split_at_checked(Self::LENGTH)?;
        let mut parts = known.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32).filter(|id| *id != 0)?;
        let span_id = hex(parts.next()?, 16).filter(|id| *id != 0)?;
        let flags = hex(parts.next()?, 2)?;
        let ends_well = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more.starts_with('-'),
        };
        (ends_well && parts.next().is_none()).then_some(TraceParent {
            trace_id,
            span_id: u64::try_from(span_id).ok()?,
            is_sampled: flags & 1 == 1,
        })
    }

    /// The same trace, with another span as the parent of what follows.
    #[must_use]
    pub fn with_span(self, span_id: u64) -> Self {
        TraceParent { span_id, ..self }
    }
}

/// A number of exactly so many digits. The standard refuses capital letters.
fn hex(digits: &str, count: usize) -> Option<u128> {
    let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digits.len() == count && is_hex { u128::from_str_radix(digits, 16).ok() } else { None }
}

/// Version 00, the one that this module knows, without the flags that it does not know.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_value_of_the_standard_is_read_and_written_again() {
        let read = TraceParent::read(GOOD).unwrap();
        assert_eq!(read.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((read.span_id, read.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(read.to_string(), GOOD);
        let other = read.with_span(7).to_string();
        assert_eq!(other, "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-01");
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for (later, known) in [
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", GOOD),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-09-what-the-future-brings", GOOD),
        ] {
            assert_eq!(TraceParent::read(later).unwrap().to_string(), known, "{later}");
        }
        // Flags of version 00 that nobody has defined are not passed on.
        let unsampled = TraceParent::read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe").unwrap();
        assert!(unsampled.to_string().ends_with("-00"));
    }

    #[test]
    fn what_the_standard_calls_invalid_is_nothing() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 01",
            "0-00af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\u{e9}-01",
        ] {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }
}

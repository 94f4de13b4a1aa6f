//! One span, as OpenTelemetry describes it.

use jiff::Timestamp;

/// Something that took a time.
#[derive(Debug)]
pub(super) struct TraceSpan {
    pub name: &'static str,
    pub kind: SpanKind,
    pub trace_id: u128,
    pub id: u64,
    /// `None` for the first span of a trace.
    pub parent_id: Option<u64>,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub values: Vec<(&'static str, Attribute)>,
    /// What went wrong; `None` if nothing did.
    pub error: Option<&'static str>,
}

/// On which side of a request a span was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A caller asked this node.
    Server,
    /// This node asked somebody else.
    Client,
}

/// The value of an attribute.
#[derive(Debug)]
pub enum Attribute {
    Text(String),
    Number(i64),
    Real(f64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Attribute::Text(text.to_owned())
    }
}

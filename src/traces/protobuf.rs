//! Writes spans as the message `ExportTraceServiceRequest` of OTLP, in the binary form of Protocol Buffers.
//!
//! The numbers of the fields are those of `opentelemetry/proto/trace/v1/trace.proto` and `common/v1/common.proto`, which are
//! stable. docs/decisions/0031-spans-are-sent-without-a-library.md says why no library writes them.

use jiff::Timestamp;

use super::span::{Attribute, SpanKind, TraceSpan};

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

/// How a field is written.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn number(mut self, field: u64, number: u64) -> Self {
        self.varint((field << 3) | VARINT);
        self.varint(number);
        self
    }

    fn fixed(mut self, field: u64, number: u64) -> Self {
        self.varint((field << 3) | FIXED_64);
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint((field << 3) | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    fn attribute(self, field: u64, name: &str, value: &Attribute) -> Self {
        let value = match value {
            Attribute::Text(text) => Message::default().bytes(1, text.as_bytes()),
            Attribute::Number(number) => Message::default().number(3, number.cast_unsigned()),
            Attribute::Real(number) => Message::default().fixed(4, number.to_bits()),
        };
        self.message(field, &Message::default().bytes(1, name.as_bytes()).message(2, &value))
    }
}

/// The request with these spans of one node.
pub(super) fn request(node: &str, spans: &[TraceSpan]) -> Vec<u8> {
    let resource = Message::default()
        .attribute(1, "service.name", &Attribute::from("refundd"))
        .attribute(1, "service.version", &Attribute::from(env!("CARGO_PKG_VERSION")))
        .attribute(1, "service.instance.id", &Attribute::from(node));
    let scope = Message::default().bytes(1, b"refundd");
    let scoped = Message::default().message(1, &scope);
    let scoped = spans.iter().fold(scoped, |scoped, span| scoped.message(2, &written(span)));
    let of_resource = Message::default().message(1, &resource).message(2, &scoped);
    Message::default().message(1, &of_resource).0
}

fn written(span: &TraceSpan) -> Message {
    let mut message =
        Message::default().bytes(1, &span.trace_id.to_be_bytes()).bytes(2, &span.id.to_be_bytes());
    if let Some(parent) = span.parent_id {
        message = message.bytes(4, &parent.to_be_bytes());
    }
    let kind = match span.kind {
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    message = message
        .bytes(5, span.name.as_bytes())
        .number(6, kind)
        .fixed(7, nanoseconds(span.began))
        .fixed(8, nanoseconds(span.ended));
    for (name, value) in &span.values {
        message = message.attribute(9, name, value);
    }
    match span.error {
        Some(what) => message.message(15, &Message::default().bytes(2, what.as_bytes()).number(3, 2)),
        None => message,
    }
}

/// Since 1970.
fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

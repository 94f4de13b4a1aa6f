//! A collector of OpenTelemetry that reads what it gets by the rules of Protocol Buffers, with no code of refundd's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A span as it arrived. Numbers of traces and spans are in hexadecimal digits.
#[derive(Debug, Clone)]
pub struct Seen {
    pub name: String,
    pub trace_id: String,
    pub span_id: String,
    pub parent_id: String,
    pub kind: u64,
    /// From its beginning to its end.
    pub nanoseconds: u64,
    /// The message of its status, if that is an error.
    pub error: String,
    /// Its attributes and those of its resource.
    pub values: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Got {
    requests: usize,
    spans: Vec<Seen>,
}

pub struct Collector {
    pub address: String,
    got: Arc<Mutex<Got>>,
    task: JoinHandle<()>,
}

impl Collector {
    pub async fn start() -> Collector {
        Collector::start_at("127.0.0.1:0").await
    }

    pub async fn start_at(address: &str) -> Collector {
        Collector::serve(address, false).await
    }

    /// It takes requests and never answers.
    pub async fn that_hangs() -> Collector {
        Collector::serve("127.0.0.1:0", true).await
    }

    async fn serve(address: &str, hangs: bool) -> Collector {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let got = Arc::<Mutex<Got>>::default();
        let take = async move |State(got): State<Arc<Mutex<Got>>>, headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let spans = read(&body);
            {
                let mut got = got.lock().unwrap();
                got.requests += 1;
                got.spans.extend(spans);
            }
            if hangs {
                std::future::pending::<()>().await;
            }
            StatusCode::OK
        };
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&got));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Collector { address, got, task }
    }

    pub fn spans(&self) -> Vec<Seen> {
        self.got.lock().unwrap().spans.clone()
    }

    pub fn requests(&self) -> usize {
        self.got.lock().unwrap().requests
    }

    /// Stops it; returns its address, at which nobody listens now.
    pub async fn leave(self) -> String {
        self.task.abort();
        let _ = self.task.await;
        self.address
    }
}

/// One field of a message: its number, and its bytes or its value.
enum Field<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

/// The fields of a message, by number, in their order.
fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => Field::Number(u64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                Field::Bytes(take(&mut message, length))
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than ten bytes")
}

fn take<'m>(message: &mut &'m [u8], count: usize) -> &'m [u8] {
    let (taken, rest) = message.split_at(count);
    *message = rest;
    taken
}

fn inner(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |(found, field)| match field {
        Field::Bytes(bytes) if found == number => Some(bytes),
        _ => None,
    })
}

fn number(message: &[u8], wanted: u64) -> u64 {
    let numbers = fields(message).into_iter().filter(|(found, _)| *found == wanted);
    numbers.map(|(_, field)| if let Field::Number(number) = field { number } else { 0 }).next().unwrap_or(0)
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap()
}

/// `ExportTraceServiceRequest`, as opentelemetry-proto 1.x describes it.
fn read(request: &[u8]) -> Vec<Seen> {
    let mut spans = Vec::new();
    for of_resource in inner(request, 1) {
        let resource: Vec<_> = inner(of_resource, 1).flat_map(|resource| attributes(resource, 1)).collect();
        for span in inner(of_resource, 2).flat_map(|scoped| inner(scoped, 2)) {
            let id = |field| inner(span, field).next().map(hex::encode).unwrap_or_default();
            let status = inner(span, 15).next().unwrap_or_default();
            assert!(status.is_empty() || number(status, 3) == 2, "the only status is an error");
            spans.push(Seen {
                name: text(inner(span, 5).next()),
                trace_id: id(1),
                span_id: id(2),
                parent_id: id(4),
                kind: number(span, 6),
                nanoseconds: number(span, 8).checked_sub(number(span, 7)).unwrap(),
                error: text(inner(status, 2).next()),
                values: attributes(span, 9).into_iter().chain(resource.clone()).collect(),
            });
        }
    }
    spans
}

fn attributes(message: &[u8], field: u64) -> Vec<(String, String)> {
    let of = |pair| {
        let value = inner(pair, 2).next().unwrap();
        let shown = match fields(value).into_iter().next().unwrap() {
            (1, Field::Bytes(bytes)) => text(Some(bytes)),
            (3, Field::Number(number)) => number.cast_signed().to_string(),
            (4, Field::Number(bits)) => f64::from_bits(bits).to_string(),
            (other, _) => panic!("a value of kind {other}"),
        };
        (text(inner(pair, 1).next()), shown)
    };
    inner(message, field).map(of).collect()
}

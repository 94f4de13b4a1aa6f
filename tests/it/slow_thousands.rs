//! `make slow`: 2,000 slow callers at once, and their effect on the rest of the node.
//!
//! A third sends headers, a third a body and a third reads an answer, each a byte a second. A caller whose connection was
//! closed comes back at once.

mod slowhttptest;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::http::get;
use crate::harness::{NodeProcess, Scratch, until};
use crate::slow::{fill, post};

const CALLERS: usize = 2000;
/// Refunds a second of the channel whose pace is measured.
const RATE: i64 = 50;

/// What was seen in one phase.
struct Seen {
    /// Of the answers of the admin listener, in the order of their duration.
    answers: Vec<Duration>,
    /// First bytes a second at the bank.
    pace: f64,
    most_memory_mib: u64,
    /// Files and connections that the node had open: the median.
    open: usize,
}

impl Seen {
    fn answer_at(&self, percent: usize) -> Duration {
        self.answers[(self.answers.len() * percent / 100).min(self.answers.len() - 1)]
    }

    fn print(&self, name: &str) {
        println!(
            "{name:<14}  {:>9.1?}     {:>9.1?}     {:>6} MiB    {:.3}/s    {:>5}",
            self.answer_at(50),
            self.answer_at(99),
            self.most_memory_mib,
            self.pace,
            self.open
        );
    }

    /// Fails if the attack cost more than is promised.
    fn judge(&self, calm: &Seen) {
        assert!(self.answer_at(99) < Duration::from_millis(100));
        assert!(self.most_memory_mib < 256);
        assert!((self.pace / calm.pace - 1.0).abs() < 0.01);
    }
}

fn print_heading() {
    println!("                admin p50     admin p99     most memory   pace of {RATE}/s  open");
}

/// How long each phase is watched.
fn length() -> Duration {
    let seconds = std::env::var("SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

/// A node whose channel sends at its pace, with refunds for so long and these lines in `[http]`.
struct Attacked {
    node: NodeProcess,
    /// Where callers reach it.
    address: SocketAddr,
    admin: SocketAddr,
}

impl Attacked {
    async fn start(scratch: &Scratch, lines: &str, length: Duration) -> Attacked {
        let channel = format!(
            "[limit.acme]\nalgorithm = \"paced\"\npermits = {RATE}\nper = \"1s\"\n[channel.acme]\n\
             endpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\nmax_in_flight = 64\n"
        );
        let http = format!("[http]\nadmin_listen = \"127.0.0.1:0\"\n{lines}");
        let node = NodeProcess::spawn_file(&scratch.file("a", &channel).replace("[http]\n", &http), []);
        node.wait_for_line("HTTP on");
        let address: SocketAddr = node.address().unwrap().parse().unwrap();
        let admin = node.log().iter().find_map(|line| {
            let (_, rest) = line.split_once("Health and metrics on ")?;
            rest.split(['"', ' ']).next()?.parse().ok()
        });
        fill(scratch, 1_500_000).await;
        scratch
            .insert("acme", "R-", u32::try_from(RATE).unwrap() * u32::try_from(length.as_secs()).unwrap())
            .await;
        until("refunds are sent", async || scratch.bank.look(|ledger| ledger.arrivals("acme").count()) > 100)
            .await;
        Attacked { node, address, admin: admin.unwrap() }
    }

    /// Files and connections that the node has open.
    fn open(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.node.pid().as_raw_nonzero())).unwrap().count()
    }

    async fn until_all_places_are_taken(&self) {
        until("the callers have all connections", async || self.open() > 1024).await;
    }
}

/// Watches the node for so long.
async fn watch(scratch: &Scratch, attacked: &Attacked, length: Duration) -> Seen {
    let Attacked { node, admin, .. } = attacked;
    let (began, mut answers, mut open, mut most_memory_kib) = (Instant::now(), Vec::new(), Vec::new(), 0);
    let from = scratch.now_us().await;
    while began.elapsed() < length {
        for path in ["/health/live", "/metrics"] {
            let began_at = Instant::now();
            let (status, _) = get(*admin, path).await.expect("the admin listener answers");
            answers.push(began_at.elapsed());
            assert_eq!(status, 200, "{path}");
        }
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", node.pid().as_raw_nonzero())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        most_memory_kib = most_memory_kib.max(line.split_whitespace().nth(1).unwrap().parse().unwrap());
        open.push(attacked.open());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let to = scratch.now_us().await;
    // From the first to the last first byte in the phase: its ends fall between two of them.
    let mut at: Vec<i64> = scratch.bank.ledger().arrivals("acme").map(|arrival| arrival.at_us).collect();
    at.retain(|at| (from..to).contains(at));
    at.sort_unstable();
    let pace = (at.len() - 1) as f64 * 1e6 / (at[at.len() - 1] - at[0]) as f64;
    answers.sort_unstable();
    open.sort_unstable();
    Seen { answers, pace, most_memory_mib: most_memory_kib / 1024, open: open[open.len() / 2] }
}

/// One slow caller, for ever.
async fn slow_caller(address: SocketAddr, number: usize) {
    let drop_of = [b'x'];
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let Ok(mut stream) = socket.connect(address).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (head, reads) = match number % 3 {
            0 => ("GET /v1/channels HTTP/1.1\r\nhost: localhost\r\nx: ".to_owned(), false),
            1 => (post("/v1/refunds", 100_000), false),
            _ => ("GET /v1/refunds?limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), true),
        };
        let mut is_open = stream.write_all(head.as_bytes()).await.is_ok();
        while is_open {
            tokio::time::sleep(Duration::from_secs(1)).await;
            is_open = if reads {
                stream.read(&mut [0]).await.is_ok_and(|read| read > 0)
            } else {
                stream.write_all(&drop_of).await.is_ok()
            };
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "`make slow` takes a minute and needs a calm machine"]
async fn two_thousand_slow_callers_delay_neither_probes_nor_channels() {
    let (scratch, length) = (Scratch::new().await, length());
    let attacked = Attacked::start(&scratch, "", length * 2 + Duration::from_secs(30)).await;
    let calm = watch(&scratch, &attacked, length).await;
    let address = attacked.address;
    let callers: Vec<_> =
        (0..CALLERS).map(|n| AbortOnDropHandle::new(tokio::spawn(slow_caller(address, n)))).collect();
    attacked.until_all_places_are_taken().await;
    let seen = watch(&scratch, &attacked, length).await;
    drop(callers);

    println!("{CALLERS} slow callers for {length:?}, of which 1,024 have a connection");
    print_heading();
    calm.print("without");
    seen.print("with");
    seen.judge(&calm);
}

//! Opens the bank's wire, the answers of token servers and the signatures to [`crate::fuzzing`].

use std::time::{Duration, Instant};

use hyper::{HeaderMap, Method, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::pool::Pool;
use super::signing::Signer;
use super::{Bank, Secrets, SendDeadline, Sent, SentInquiry, Slept, token};
use crate::channel::{Channel, Signing};
use crate::refund::Leased;
use crate::refund::inquiry::LeasedInquiry;

/// No test waits so long.
const LONG: Duration = Duration::from_mins(1);

/// Sends a refund to a bank that answers with these bytes and hangs up. `None` if the client cannot be made.
pub async fn sent(channel: &Channel, refund: &Leased, answer: &[u8]) -> Option<Sent> {
    let bank = Bank::new(channel).ok()?;
    answering(bank.connections(), answer).await?;
    let deadline = SendDeadline::at(Instant::now() + LONG, Slept::now());
    Some(bank.send(refund, deadline, None).await)
}

/// Asks such a bank about a refund.
pub async fn inquired(channel: &Channel, leased: &LeasedInquiry, answer: &[u8]) -> Option<SentInquiry> {
    let bank = Bank::new(channel).ok()?;
    answering(bank.inquiry_connections()?, answer).await?;
    let deadline = SendDeadline::at(Instant::now() + LONG, Slept::now());
    Some(bank.inquire(leased, deadline, None).await)
}

async fn answering(pool: &Pool, answer: &[u8]) -> Option<()> {
    let (ours, banks) = duplex(256 * 1024);
    tokio::spawn(answer_once(banks, answer.to_vec()));
    pool.adopt(ours).await.ok()
}

/// Reads the head of one request, and answers.
async fn answer_once(mut stream: DuplexStream, answer: Vec<u8>) {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => read.extend_from_slice(&buffer[..length]),
            _ => return,
        }
    }
    // The client may have hung up.
    let _ = stream.write_all(&answer).await;
}

/// Reads the answer of a token server: the value of the header and how long it lives, or the reason.
///
/// # Errors
/// With the reason for people.
pub fn token_answer(status: u16, body: &[u8]) -> Result<(String, Duration), String> {
    let token = token::answer::read(status, body, Secrets::default()).map_err(|no_token| no_token.why)?;
    Ok((String::from_utf8_lossy(token.header.as_bytes()).into_owned(), token.life))
}

/// The headers of a signed request; `None` if it cannot be signed.
#[must_use]
pub fn signed(
    keys: &Signing,
    address: &Uri,
    (method, path): (&Method, &Uri),
    mut headers: HeaderMap,
    body: &[u8],
    created: u64,
) -> Option<HeaderMap> {
    Signer::new(keys, address).sign(method, path, &mut headers, body, created).ok()?;
    Some(headers)
}

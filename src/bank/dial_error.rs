//! Why no connection to a bank could be opened, and the code of each reason.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use crate::channel::WhyNot;
use crate::refund::Code;

/// What opening a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialStage {
    Dns,
    Tcp,
    Tls,
}

impl fmt::Display for DialStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DialStage::Dns => "find the address of",
            DialStage::Tcp => "connect to",
            DialStage::Tls => "agree on TLS with",
        })
    }
}

/// Why no connection could be opened. No byte of any request was written.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("find the address of {host}: {source}")]
    Dns { host: String, source: io::Error },
    #[error("connect to {host}: its address {ip} {why}; name its range in `addresses` if that is right")]
    AddressRefused { host: String, ip: IpAddr, why: WhyNot },
    #[error("connect to {host}: {source}")]
    Tcp { host: String, source: io::Error },
    #[error("agree on TLS with {host}: {source}")]
    Tls { host: String, source: io::Error },
    #[error("speak HTTP with {host}: {source}")]
    Http { host: String, source: hyper::Error },
    #[error("{stage} {host} within {limit:?}")]
    TimedOut { stage: DialStage, host: String, limit: Duration },
    #[error("keep a connection to {host} open: it was closed before any request")]
    Closed { host: String },
    #[error("keep a connection to {host} open: it asked for a client certificate and hung up; {has}")]
    CertificateRefused { host: String, has: &'static str },
}

impl DialError {
    pub fn code(&self) -> Code {
        match self {
            DialError::Dns { .. } | DialError::TimedOut { stage: DialStage::Dns, .. } => Code::DnsFailed,
            DialError::AddressRefused { .. } => Code::AddressRefused,
            DialError::Tcp { .. } => Code::ConnectFailed,
            DialError::Tls { .. } | DialError::CertificateRefused { .. } => Code::TlsFailed,
            DialError::Http { .. } => Code::HttpFailed,
            DialError::TimedOut { .. } => Code::ConnectTimeout,
            DialError::Closed { .. } => Code::ConnectClosed,
        }
    }
}

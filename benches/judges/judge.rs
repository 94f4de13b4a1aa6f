//! The independent judges: nginx and `HAProxy`, each a process on this machine in front of the pretend bank. Each
//! limits the requests and logs which it refused.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use playground::{Front, find};

use crate::cell::RATE;

/// A kind of judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `limit_req` without burst: refuses a request less than 1 / rate after the accepted one before.
    NginxGap,
    /// `limit_req` with a burst of the rate, without delay: a leaky bucket.
    NginxBurst,
    /// `http_req_rate` over a second: the count of this second plus a weighted part of the second before.
    Haproxy,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::NginxGap, Kind::NginxBurst, Kind::Haproxy];

    pub fn name(self) -> &'static str {
        match self {
            Kind::NginxGap => "nginx",
            Kind::NginxBurst => "nginx-burst",
            Kind::Haproxy => "haproxy",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Kind::NginxGap | Kind::NginxBurst => "nginx",
            Kind::Haproxy => "haproxy",
        }
    }

    fn config(self, folder: &Path, port: u16, bank: SocketAddr) -> String {
        let mut text = String::new();
        let burst = match self {
            Kind::NginxBurst => format!(" burst={RATE} nodelay"),
            Kind::NginxGap | Kind::Haproxy => String::new(),
        };
        // Each path is a channel and is counted separately.
        let _ = match self {
            Kind::Haproxy => write!(
                text,
                "global\n  log stdout format raw local0\n  maxconn 2000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  log global\n  log-format \"%ST %HP\"\nfrontend door\n  bind 127.0.0.1:{port}\n  stick-table type string len 64 size 10k expire 1m store http_req_rate(1s)\n  http-request track-sc0 path\n  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {RATE} }}\n  default_backend bank\nbackend bank\n  server bank {bank}\n"
            ),
            Kind::NginxGap | Kind::NginxBurst => write!(
                text,
                "daemon off;\nworker_processes 1;\n{user}pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{ worker_connections 2048; }}\nhttp {{\n  log_format short '$status $uri';\n  access_log {folder}/access.log short;\n  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n  limit_req_zone $uri zone=refunds:1m rate={RATE}r/s;\n  limit_req_status 429;\n  keepalive_requests 1000000;\n  upstream bank {{ server {bank}; keepalive 64; }}\n  server {{ listen 127.0.0.1:{port}; location / {{ limit_req zone=refunds{burst}; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_pass http://bank; }} }}\n}}\n",
                user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" },
                folder = folder.display(),
            ),
        };
        text
    }
}

/// A running judge. It ends when this is dropped.
#[derive(Debug)]
pub struct Judge {
    pub front: Front,
    kind: Kind,
}

impl Judge {
    /// Starts a judge in front of the bank, and waits until it accepts connections. Fails if its program is missing.
    pub async fn start(kind: Kind, bank: SocketAddr) -> anyhow::Result<Judge> {
        let name = kind.program();
        let program = find::server(name)
            .with_context(|| format!("no {name} on this machine; run `tools/install-servers judges`"))?;
        let front = Front::start(|folder, port| {
            let file = folder.join("judge.conf");
            std::fs::write(&file, kind.config(folder, port, bank))?;
            let mut command = Command::new(program);
            match kind {
                Kind::Haproxy => command.args(["-db", "-f"]).arg(&file),
                Kind::NginxGap | Kind::NginxBurst => command.arg("-p").arg(folder).arg("-c").arg(&file),
            };
            Ok(command)
        })
        .await?;
        Ok(Judge { front, kind })
    }

    /// Requests and refusals so far, by channel.
    pub fn counts(&self) -> HashMap<String, (u64, u64)> {
        let text = self.front.read(match self.kind {
            Kind::Haproxy => "log",
            Kind::NginxGap | Kind::NginxBurst => "access.log",
        });
        let mut counts: HashMap<String, (u64, u64)> = HashMap::new();
        for line in text.lines() {
            let Some((status, path)) = line.split_once(' ') else { continue };
            let channel = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let of_it = counts.entry(channel.to_owned()).or_default();
            of_it.0 += 1;
            of_it.1 += u64::from(status == "429");
        }
        counts
    }
}

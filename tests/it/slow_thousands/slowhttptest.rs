//! Debian's program slowhttptest with 2,000 connections over TLS, in each of its three modes.
//!
//! The program ends when the node has closed all its connections. Then it is started again, until the mode was watched
//! for long enough.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use super::{Attacked, CALLERS, length, print_heading, watch};
use crate::harness::certificates::Issued;
use crate::harness::{Scratch, until};
use crate::listener_tls::{OURS, tls};

/// A mode: its name, its options and the path that it attacks.
type Mode = (&'static str, &'static [&'static str], &'static str);

const MODES: [Mode; 3] = [
    ("slow headers", &["-H", "-i", "1"], "/v1/channels"),
    ("slow body", &["-B", "-i", "1", "-s", "100000", "-f", "application/json"], "/v1/refunds"),
    (
        "slow read",
        &["-X", "-n", "1", "-z", "16", "-w", "512", "-y", "1024", "-k", "3"],
        "/v1/refunds?limit=1000",
    ),
];

/// Attacks for ever. The attacker gets the cores that others leave: a real one has cores of its own.
async fn attack(address: SocketAddr, (_, options, path): Mode) {
    let words = format!("-c {CALLERS} -r 1000 -l 30 -p 3 -u https://{address}{path}");
    loop {
        let mut command = Command::new("nice");
        command.args(["-n", "19", "slowhttptest"]).args(options).args(words.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let ended = command.status().await.expect("nice is a program of every system");
        assert!(ended.success(), "`make slow` installs slowhttptest: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "`make slow` takes two minutes, and needs slowhttptest and a calm machine"]
async fn slowhttptest_over_tls_delays_neither_probes_nor_channels() {
    let (scratch, ours, length) = (Scratch::new().await, Issued::new(), length());
    let attacked =
        Attacked::start(&scratch, &tls(&ours.identity(OURS), None), length * 4 + Duration::from_mins(1))
            .await;
    let calm = watch(&scratch, &attacked, length).await;
    let idle = attacked.open();
    let mut phases = Vec::new();
    for mode in MODES {
        let attack = AbortOnDropHandle::new(tokio::spawn(attack(attacked.address, mode)));
        attacked.until_all_places_are_taken().await;
        let seen = watch(&scratch, &attacked, length).await;
        assert!(!attack.is_finished(), "slowhttptest failed");
        drop(attack);
        until("the node has closed the connections", async || attacked.open() < idle + 100).await;
        phases.push((mode.0, seen));
    }

    println!("slowhttptest over TLS with {CALLERS} connections, {length:?} in each mode");
    print_heading();
    calm.print("without");
    for (name, seen) in &phases {
        seen.print(name);
    }
    for (_, seen) in &phases {
        seen.judge(&calm);
    }
}

//! The hardening of the unit, tried from inside: what the running node may do, and what the kernel refuses.
//!
//! A program of attempts runs twice: under a copy of the installed unit, and as the same user without it. An attempt that
//! fails without the unit, too, shows nothing, and is named.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};

use super::machine::Machine;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
const EAFNOSUPPORT: i32 = 97;

/// An attempt, the line of the unit that forbids it, and the errors by which it may be refused.
const ATTEMPTS: &[(&str, &str, &[i32])] = &[
    ("exec", "NoExecPaths=", &[EACCES]),
    ("port", "SocketBindDeny=", &[EPERM]),
    ("write", "ProtectSystem=", &[EROFS]),
    ("home", "ProtectHome=", &[EACCES]),
    ("tmp", "PrivateTmp=", &[ENOENT]),
    ("processes", "ProtectProc=", &[ENOENT]),
    ("kernel", "ProcSubset=", &[ENOENT]),
    ("priority", "SystemCallFilter=", &[EPERM]),
    ("code", "MemoryDenyWriteExecute=", &[EPERM, EACCES]),
    ("setuid", "RestrictSUIDSGID=", &[EPERM]),
    ("family", "RestrictAddressFamilies=", &[EAFNOSUPPORT]),
    ("namespace", "RestrictNamespaces=", &[EPERM]),
    ("personality", "LockPersonality=", &[EPERM]),
];

const PROGRAM: &str = include_str!("attempts.pl");
const WITHOUT: &str =
    "[Service]\nType=oneshot\nUser=refundd\nExecStart=/usr/bin/perl /etc/refundd/attempts.pl\n";
const UNDER: &str =
    "[Service]\nType=oneshot\nExecPaths=/usr/bin/perl\nExecStart=/usr/bin/perl /etc/refundd/attempts.pl\n";
/// The copy of the unit has all its lines but those of the node's own process.
const PREPARE: &str = "
    set -e
    cd /etc/refundd && chmod 644 attempts.pl without.service under.conf
    install -d -o refundd /var/lib/refundd-attempts
    install -d /home/somebody && touch /tmp/of-others
    units=/run/systemd/system && mkdir -p $units/under.service.d
    cp without.service $units/ && cp under.conf $units/under.service.d/
    grep -vE '^(Exec(Start|StartPre|Reload)|Type|NotifyAccess|WatchdogSec|Restart|RestartSec)=' \\
        /usr/lib/systemd/system/refundd.service >$units/under.service
    systemctl daemon-reload";

/// The fields of a process's `/proc/PID/status`.
fn status(machine: &Machine, pid: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let text = machine.run(&format!("cat /proc/{pid}/status"))?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

/// Checks the rights of the running node.
pub fn node_has_no_rights(machine: &Machine) -> anyhow::Result<()> {
    let (node, init) = (status(machine, &machine.property("MainPID")?)?, status(machine, "1")?);
    ensure!(node["NoNewPrivs"] == "1", "the node may get more rights: {node:?}");
    let sets: Vec<_> = node.iter().filter(|(name, _)| name.starts_with("Cap")).collect();
    ensure!(sets.len() == 5, "not all sets of rights: {node:?}");
    for (set, rights) in sets {
        ensure!(rights.bytes().all(|digit| digit == b'0'), "the node has rights in {set}: {node:?}");
    }
    // nspawn has filters of its own, so one filter alone would show nothing.
    let filters = |of: &BTreeMap<String, String>| of["Seccomp_filters"].parse::<u32>();
    ensure!(node["Seccomp"] == "2", "no filter of system calls: {node:?}");
    ensure!(filters(&node)? > filters(&init)?, "the unit's filter of system calls is missing: {node:?}");
    Ok(())
}

/// The error of each attempt in a unit.
fn errors(machine: &Machine, unit: &str) -> anyhow::Result<BTreeMap<String, i32>> {
    machine.run(&format!("systemctl start {unit}"))?;
    let log = format!("journalctl -u {unit} -o cat --no-pager");
    machine.wait(&log, std::time::Duration::from_secs(10), |text| text.lines().any(|line| line == "done"))?;
    let text = machine.run(&log)?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.filter_map(|(name, error)| Some((name.to_owned(), error.parse().ok()?))).collect())
}

/// Tries what the unit forbids, with its files in `etc`; says how much was refused.
pub fn refusals(machine: &Machine, etc: &Path) -> anyhow::Result<String> {
    for (name, text) in [("attempts.pl", PROGRAM), ("without.service", WITHOUT), ("under.conf", UNDER)] {
        std::fs::write(etc.join(name), text).with_context(|| format!("failed to write {name}"))?;
    }
    machine.run(PREPARE)?;
    let (without, under) = (errors(machine, "without")?, errors(machine, "under")?);
    let has_bpf = machine.run("systemctl --version")?.contains("+BPF_FRAMEWORK");
    let (mut refused, mut not_shown) = (0, Vec::new());
    for (name, line, expected) in ATTEMPTS {
        let of = |errors: &BTreeMap<String, i32>| {
            errors.get(*name).copied().with_context(|| format!("nothing about `{name}` in {errors:?}"))
        };
        let (without, under) = (of(&without)?, of(&under)?);
        if expected.contains(&without) {
            not_shown.push(format!("`{line}` (it fails without it, too)"));
        } else if *name == "port" && !has_bpf && under == 0 {
            not_shown.push(format!("`{line}` (this systemd is built without BPF and ignores it)"));
        } else {
            ensure!(expected.contains(&under), "`{line}` does not refuse `{name}`: error {under}");
            refused += 1;
        }
    }
    let refused = format!("{refused} of {} forbidden things refused", ATTEMPTS.len());
    if not_shown.is_empty() {
        return Ok(refused);
    }
    Ok(format!("{refused}, not shown: {}", not_shown.join(", ")))
}

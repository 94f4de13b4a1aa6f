//! Checks Redis: the way to it, its settings, and the rights of the node's user.
//!
//! No setting of Redis can break a limit or lose a refund. A wrong one costs pace, or stops channels.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::ExposeSecret;

use super::certificates;
use super::clocks::ClockSample;
use super::finding::Finding;
use crate::bucket::{
    BucketKind, ServerCheckup, certificates_of, is_this_host, secure_servers, unchecked_hosts,
};
use crate::certificate::first_end;
use crate::config::Config;
use crate::logs::chain;

const REACH: &str = "redis.reach";
const SETTINGS: &str = "redis.settings";
const RIGHTS: &str = "redis.rights";
const TLS: &str = "redis.tls";

/// What was found, and the clocks of the servers that could be asked.
pub(super) async fn findings(
    config: &Config,
    soon: Duration,
    now: Timestamp,
) -> (Vec<Finding>, Vec<ClockSample>) {
    if config.bucket.kind == BucketKind::Memory {
        let found = "`[bucket] kind = \"memory\"`: the node needs no Redis";
        return (vec![Finding::ok(REACH, found)], Vec::new());
    }
    let (tls, (mut findings, clocks)) = tokio::join!(tls(config, soon, now), servers(config));
    findings.extend(tls);
    (findings, clocks)
}

async fn servers(config: &Config) -> (Vec<Finding>, Vec<ClockSample>) {
    let away = |why: String| {
        Finding::broken(
            REACH,
            format!("Redis cannot be used: {} {why}", config.redis.named()),
            "refunds are saved and wait: no permit is granted without Redis",
            "start the server, or correct `[redis] url` and what its message names",
        )
    };
    let bucket = match config.redis.open() {
        Ok(bucket) => bucket,
        Err(error) => return (vec![away(format!("is refused: {}", chain(&error)))], Vec::new()),
    };
    config.group(&bucket);
    if let Some(mistake) = bucket.wrong_server().await {
        return (vec![away(mistake.to_string())], Vec::new());
    }
    let servers = match bucket.checkup(config.channels.values().map(AsRef::as_ref)).await {
        Ok(servers) => servers,
        Err(error) if error.is_missing_right() => {
            return (vec![lacks_rights(&format!("failed to {}", chain(&error)))], Vec::new());
        }
        Err(error) => {
            return (vec![away(format!("does not answer: failed to {}", chain(&error)))], Vec::new());
        }
    };
    let is_one = servers.len() == 1;
    let (mut findings, mut clocks) = (Vec::new(), Vec::new());
    for server in servers {
        let port = server.info.get("tcp_port").map_or("?", String::as_str);
        let name = if is_one { "Redis".to_owned() } else { format!("the Redis on port {port}") };
        let (us, at) = server.clock;
        clocks.push(ClockSample { name: name.clone(), us, at });
        let about = |finding: Finding| if is_one { finding } else { finding.about(name.clone()) };
        findings.extend(of_server(&server).into_iter().map(about));
    }
    (findings, clocks)
}

fn lacks_rights(refused: &str) -> Finding {
    Finding::broken(
        RIGHTS,
        format!("Redis refuses commands that nodes need: {refused}"),
        "channels are blocked: their scripts fail",
        "give the user the rights of config/redis.acl (`ACL LOAD` after a change of the file), and set a `key_prefix` that they cover",
    )
}

fn of_server(server: &ServerCheckup) -> Vec<Finding> {
    let ServerCheckup { clock: _, info, refused, is_administrator } = server;
    let field = |name: &str| info.get(name).map_or("", String::as_str);
    let version = ["valkey_version", "redis_version"].into_iter().map(field).find(|text| !text.is_empty());
    let mut findings =
        vec![Finding::ok(REACH, format!("Redis answers, version {}", version.unwrap_or("unknown")))];
    if field("role") == "slave" {
        findings.push(Finding::broken(
            REACH,
            "the server is a replica",
            "it refuses every write, so no permit is granted",
            "let the address lead to the primary, or name the sentinels: redis+sentinel://host:port,.../master",
        ));
    }
    findings.extend(memory(info));
    if field("rdb_last_bgsave_status") == "err" {
        findings.push(Finding::warning(
            SETTINGS,
            "the last snapshot failed (rdb_last_bgsave_status:err)",
            "with stop-writes-on-bgsave-error, the default, Redis refuses writes until a snapshot succeeds",
            "make room on its disk, or switch snapshots off with `save \"\"`: refundd needs none",
        ));
    }
    if !refused.is_empty() {
        findings.push(lacks_rights(&refused.join("; ")));
    }
    if *is_administrator {
        findings.push(Finding::warning(
            RIGHTS,
            "the user may administer the server: CONFIG GET is answered",
            "a stolen password of a node changes settings, deletes other programs' keys and writes files",
            "let nodes log in as the user of config/redis.acl, and switch the user `default` off",
        ));
    }
    if refused.is_empty() && !is_administrator {
        findings.push(Finding::ok(
            RIGHTS,
            "the user has the rights that a node needs, and cannot administer the server",
        ));
    }
    findings
}

/// What happens when Redis is full.
fn memory(info: &BTreeMap<String, String>) -> Vec<Finding> {
    let policy = info.get("maxmemory_policy").map_or("", String::as_str);
    let number = |name: &str| info.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (used, most) = (number("used_memory"), number("maxmemory"));
    let mut findings = Vec::new();
    if !["", "noeviction"].contains(&policy) {
        findings.push(Finding::warning(
            SETTINGS,
            format!("maxmemory-policy = {policy}, maxmemory = {most} bytes"),
            "when Redis is full it evicts counts of limits: each such limit rests until it is counted again from the ledger. No limit breaks",
            "`CONFIG SET maxmemory-policy noeviction`, and the same in redis.conf",
        ));
    }
    if most > 0 && used > most / 10 * 9 {
        findings.push(Finding::warning(
            SETTINGS,
            format!("{used} of {most} bytes of memory are used"),
            "a full Redis refuses the scripts (OOM), and no permit is granted",
            "raise maxmemory, or give refundd a Redis of its own",
        ));
    }
    if findings.is_empty() && !policy.is_empty() {
        findings.push(Finding::ok(SETTINGS, format!("maxmemory-policy = {policy}, {used} bytes used")));
    }
    findings
}

/// Whether the way to Redis is closed to others, and how long the servers' certificates are good.
async fn tls(config: &Config, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let url = config.redis.url.expose_secret();
    let open: Vec<String> = unchecked_hosts(url).into_iter().filter(|host| !is_this_host(host)).collect();
    if !open.is_empty() {
        return vec![Finding::warning(
            TLS,
            format!(
                "clear text, or an unchecked certificate, to {}: `plain = \"accepted\"`",
                open.join(", ")
            ),
            "anyone on the way reads the password, and changes counts; the claim in Postgres still keeps the limit",
            "use `rediss://` in `[redis] url`, and remove `plain`",
        )];
    }
    let secure = secure_servers(url);
    if secure.is_empty() {
        return vec![Finding::ok(TLS, "Redis is on this host")];
    }
    let looks = secure.iter().map(|(host, port)| async move {
        let shown = tokio::time::timeout(Duration::from_secs(5), certificates_of(host, *port)).await;
        let end = shown.ok().and_then(Result::ok).and_then(|certificates| first_end(&certificates));
        let way_out =
            "renew the certificate on Redis's machine, and load it with `CONFIG SET tls-cert-file …`";
        let whose = format!("the certificate of {host}:{port}");
        certificates::finding(TLS, &whose, end, (soon, now), way_out)
    });
    let looks = futures_util::future::join_all(looks).await;
    let checked = Finding::ok(TLS, "TLS is used, and the server's name is checked");
    std::iter::once(checked).chain(looks).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::cli::doctor::finding::Severity;

    #[test]
    fn a_snapshot_that_failed_is_found_because_redis_may_refuse_writes() {
        let info = [
            ("redis_version", "7.0.15"),
            ("maxmemory_policy", "noeviction"),
            ("rdb_last_bgsave_status", "err"),
        ];
        let server = ServerCheckup {
            clock: (0, Instant::now()),
            info: info.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            refused: Vec::new(),
            is_administrator: false,
        };
        let found = of_server(&server);
        let warned = |one: &&Finding| one.severity == Severity::Warning && one.found.contains("snapshot");
        assert_eq!(found.iter().filter(warned).count(), 1, "{found:?}");
    }
}

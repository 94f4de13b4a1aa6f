//! docker-compose.yml as far as it can be tried without containers: its text, and its scripts with real servers.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use playground::find;
use redis::AsyncCommands;

use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, until};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn script(name: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(Path::new(ROOT).join("config/compose").join(name));
    command.env("CONFIG", Path::new(ROOT).join("config"));
    command
}

/// Lets a command find the programs of this folder first.
pub fn with_path(command: &mut Command, folder: &Path) {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
}

/// The sections of the file that stand below `services:`, each with its name.
fn services(text: &str) -> Vec<(String, String)> {
    let (_, services) = text.split_once("\nservices:\n").unwrap();
    let (services, _) = services.split_once("\nnetworks:\n").unwrap();
    let mut found: Vec<(String, String)> = Vec::new();
    for line in services.lines() {
        match line.strip_prefix("  ").and_then(|line| line.strip_suffix(':')) {
            Some(name) if !name.starts_with([' ', '#']) => found.push((name.to_owned(), String::new())),
            _ => {
                if let Some((_, section)) = found.last_mut() {
                    section.push_str(line);
                    section.push('\n');
                }
            }
        }
    }
    found
}

#[test]
fn every_container_is_confined_and_nobody_is_trusted_without_a_password() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docker-compose.yml")).unwrap();
    for limit in
        ["read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", "mem_limit: ", "pids_limit: "]
    {
        let confined =
            text.split("x-confined: &confined\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        assert!(confined.unwrap().contains(limit), "{limit}");
    }
    // Each service takes over the section of limits, by itself or by the section of its kind.
    for kind in ["refundd", "postgres"] {
        assert!(text.contains(&format!("x-{kind}: &{kind}\n  <<: *confined\n")), "{kind}");
    }
    assert!(text.contains("x-node: &node\n  <<: *refundd\n"));
    // Without it, a node never gets past a silent first address of Postgres.
    let refundd = text.split("x-refundd: &refundd\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    assert!(refundd.unwrap().contains("\n  tmpfs: [/tmp]"));
    // Without it, each health check that is stopped at its time-out leaves a process.
    let node = text.split("x-node: &node\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    assert!(node.unwrap().contains("\n  init: true\n"));
    let services = services(&text);
    assert_eq!(services.len(), 7);
    for (name, section) in services {
        let first = section.lines().next().unwrap_or_default();
        assert!(
            ["confined", "refundd", "node", "postgres"]
                .iter()
                .any(|kind| first == format!("    <<: *{kind}")),
            "{name}"
        );
        for word in ["privileged", "ports:", "read_only: false"] {
            assert!(!section.contains(word), "{name}: {word}");
        }
    }
    assert!(!text.contains("trust") && text.contains("--auth=scram-sha-256"));
    // No secret stands in the file, and without the file .env nothing starts.
    for name in ["POSTGRES", "OWNER", "NODE", "REDIS"] {
        assert!(
            text.contains(&format!("${{{name}_PASSWORD:?run config/compose/passwords first}}")),
            "{name}"
        );
    }
}

#[test]
fn services_come_back_after_a_reboot_of_the_host_and_those_that_run_once_do_not() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docker-compose.yml")).unwrap();
    let node = text.split("x-node: &node\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    for (name, section) in services(&text) {
        let said = if section.starts_with("    <<: *node\n") { node } else { section.as_str() };
        let runs_once = ["migrate", "roles"].contains(&name.as_str());
        let policy = if runs_once { "  restart: \"no\"\n" } else { "  restart: unless-stopped\n" };
        assert!(said.contains(policy), "{name}");
    }
}

#[test]
fn every_image_from_elsewhere_is_pinned_by_its_digest() {
    let mut pinned = Vec::new();
    for file in ["docker-compose.yml", "Dockerfile"] {
        let text = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
        for line in text.lines() {
            let Some(image) = line
                .trim_start()
                .strip_prefix("image: ")
                .or_else(|| line.strip_prefix("FROM "))
                .map(|image| image.split_whitespace().next().unwrap_or_default())
            else {
                continue;
            };
            // Built here.
            if image.starts_with("refundd") {
                continue;
            }
            let (tag, digest) =
                image.split_once("@sha256:").unwrap_or_else(|| panic!("{file}: {image} has no digest"));
            assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{file}: {image}");
            pinned.push(tag.split(':').next().unwrap().to_owned());
        }
    }
    assert_eq!(pinned, ["postgres", "redis", "rust", "debian"]);
}

#[test]
fn passwords_are_made_once_and_only_their_owner_may_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("config/compose");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(Path::new(ROOT).join("config/compose/passwords"), place.join("passwords")).unwrap();
    let run = || {
        assert!(Command::new("/bin/sh").arg(place.join("passwords")).status().unwrap().success());
        std::fs::read_to_string(folder.path().join(".env")).unwrap()
    };
    let made = run();
    assert_eq!(run(), made, "a file that is there stays");
    let passwords: std::collections::BTreeSet<&str> =
        made.lines().filter_map(|line| line.split_once("_PASSWORD=").map(|(_, password)| password)).collect();
    assert_eq!(passwords.len(), 4, "{made}");
    assert!(passwords.iter().all(|p| p.len() == 48 && p.bytes().all(|b| b.is_ascii_hexdigit())), "{made}");
    let mode = std::fs::metadata(folder.path().join(".env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn no_password_of_the_containers_stands_on_a_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let psql = folder.path().join("psql");
    std::fs::write(&psql, "#!/bin/sh\necho \"psql $*\"\n").unwrap();
    std::fs::set_permissions(&psql, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, variable) in [("roles.sh", "NODE_PASSWORD"), ("owner.sh", "OWNER_PASSWORD")] {
        let mut made = script(name);
        with_path(&mut made, folder.path());
        let made = made.env(variable, "a-secret").output().unwrap();
        let said = String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned();
        assert!(made.status.success() && said.contains("ON_ERROR_STOP=1"), "{name}: {said}");
        assert!(!said.contains("a-secret"), "{name}: {said}");
    }
}

#[tokio::test]
async fn the_roles_of_the_containers_can_be_made_again_and_again() {
    let scratch = Scratch::new().await;
    let make = || {
        let mut roles = script("roles.sh");
        with_path(&mut roles, &find::postgres().unwrap());
        roles.env("PGHOST", SERVERS.postgres.folder()).env("PGPORT", "5432").env("PGUSER", "refundd");
        roles.env("PGDATABASE", &scratch.name).env("NODE_PASSWORD", "it's a secret");
        let made = roles.output().unwrap();
        let said = String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned();
        assert!(made.status.success(), "{said}");
        said
    };
    for _ in 0..2 {
        make();
    }
    assert!(
        scratch
            .text("select rolpassword from pg_authid where rolname = 'refundd_app'")
            .await
            .starts_with("SCRAM-")
    );
    // An older version is started on the schema of a newer one.
    scratch
        .sql("insert into refundd.migrations (version, description, success, checksum, execution_time) values (9999, 'from the future', true, '', 0)")
        .await;
    let said = make();
    assert!(said.contains("the schema is newer (9999)"), "{said}");
    assert_eq!(scratch.store.lacking_rights().await.unwrap().rights, Vec::<String>::new());
}

#[tokio::test]
async fn the_redis_of_the_containers_has_the_shipped_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let mut redis = script("redis.sh");
    with_path(&mut redis, find::redis().unwrap().parent().unwrap());
    redis.env("FOLDER", folder.path()).env("REDIS_PASSWORD", "0123abcd");
    redis.args(["--port", "0", "--unixsocket"]).arg(&socket).stdout(Stdio::null());
    let mut server = redis.spawn().unwrap();
    let connect = async |login: &str| {
        let client = redis::Client::open(format!("redis+unix://{}{login}", socket.display())).unwrap();
        client.get_multiplexed_async_connection().await
    };
    // The socket is there a moment before the server listens.
    until("it listens", async || connect("?user=refundd&pass=0123abcd").await.is_ok()).await;
    let mut node = connect("?user=refundd&pass=0123abcd").await.unwrap();
    assert_eq!(node.llen::<_, i64>("refundd:{acme}:bucket").await.unwrap(), 0);
    assert!(node.llen::<_, i64>("other").await.is_err());
    assert!(connect("?user=refundd&pass=CHANGE-ME").await.is_err());
    let users = std::fs::read_to_string(folder.path().join("users.acl")).unwrap();
    assert!(!users.contains("0123abcd"), "{users}");
    let mut nobody = connect("").await.unwrap();
    assert!(nobody.llen::<_, i64>("refundd:{acme}:bucket").await.is_err());
    server.kill().unwrap();
    server.wait().unwrap();
}

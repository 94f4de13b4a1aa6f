//! The addresses to which the name of Postgres may lead.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use playground::{Authority, PostgresOptions, PrivatePostgres, Silent};
use sqlx::{Connection, Executor, PgConnection};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::addresses::TWO;
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch};
use crate::server_tls::put;

/// The program runs where `localhost` has two addresses. The first one is silent, and later it accepts connections and says
/// nothing. TLS still checks the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_whose_names_first_address_is_silent_or_hangs_is_reached_by_the_second() {
    let options = PostgresOptions { tcp: true, ..PostgresOptions::for_tests() };
    let postgres = PrivatePostgres::start_with(&options).await.unwrap();
    postgres.create_database("payments", None).await.unwrap();
    let authority = Authority::new().unwrap();
    let data = postgres.folder().join("data");
    let (certificate, key) = authority.pem().unwrap();
    put(&data, "server.crt", &certificate);
    put(&data, "server.key", &key);
    put(&data, "pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 trust\n");
    let mut database = PgConnection::connect(&postgres.url("payments")).await.unwrap();
    database.execute("alter system set ssl = on").await.unwrap();
    database.execute("select pg_reload_conf()").await.unwrap();

    let silent = Silent::open().await.unwrap();
    let first = silent.address;
    let second = TcpListener::bind(("127.0.0.2", first.port())).await.unwrap();
    let port = postgres.port().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = second.accept().await {
            tokio::spawn(async move {
                let mut postgres = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                copy_bidirectional(&mut stream, &mut postgres).await.ok();
            });
        }
    });

    let folder = tempfile::tempdir().unwrap();
    let (hosts, config) = (folder.path().join("hosts"), folder.path().join("refundd.toml"));
    std::fs::write(&hosts, "127.0.0.1 localhost elsewhere\n127.0.0.2 localhost elsewhere\n").unwrap();
    let migrate = async |name: &str| {
        let text = format!(
            "[postgres]\nurl = \"postgres://refundd@{name}:{}/payments\"\ntls = \"verify-full\"\nca_file = {:?}\n[redis]\nurl = \"redis://localhost\"\n",
            first.port(),
            authority.file()
        );
        std::fs::write(&config, text).unwrap();
        let mut program = NodeProcess::program_with_hosts(&hosts);
        program.args(["migrate", "--config"]).arg(&config);
        tokio::task::spawn_blocking(move || program.output()).await.unwrap().unwrap()
    };
    // The certificate is not for this name.
    let refused = migrate("elsewhere").await;
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
    let began = Instant::now();
    let done = migrate("localhost").await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let tables =
        sqlx::query_scalar::<_, i64>("select count(*) from refundd.refunds").fetch_one(&mut database).await;
    assert_eq!(tables.unwrap(), 0);

    silent.accept();
    let again = migrate("localhost").await;
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
}

/// As in a container whose file system is read-only.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_can_make_no_socket_says_why_it_does_not_pass_over_a_silent_first_address() {
    let scratch = Scratch::new().await;
    let silent = Silent::open().await.unwrap();
    let port = silent.address.port();
    let _second = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let around = format!("postgres://refundd@localhost:{port}/payments");
    let text = scratch.file("a", UNLIMITED).replace(&scratch.database_url, &around);
    let node = NodeProcess::spawn_with_hosts(&text, TWO, [("TMPDIR", "/proc/nowhere")]);
    node.wait_for_line("a Unix socket in /proc/nowhere: No such file or directory");
    assert!(node.log().iter().any(|line| line.contains("tmpfs: [/tmp]")), "{:#?}", node.log());
}

/// The resolver opens `/etc/hosts`, which is a pipe that nobody writes. So its thread never ends.
#[tokio::test]
async fn a_command_ends_after_its_error_though_a_lookup_still_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (hosts, config) = (folder.path().join("hosts"), folder.path().join("refundd.toml"));
    assert!(Command::new("mkfifo").arg(&hosts).status().unwrap().success());
    std::fs::write(&config, "[postgres]\nurl = \"postgres://refundd@localhost/payments\"\n").unwrap();
    let mut program = NodeProcess::program_with_hosts(&hosts);
    program.args(["migrate", "--config"]).arg(&config).stderr(Stdio::piped());
    let (mut child, began) = (program.spawn().unwrap(), Instant::now());
    while child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(40) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // It has ended by itself, or it ends now without a code.
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Postgres did not answer within"), "{said}");
}

//! Connections to Postgres that fall silent, break or are given up halfway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use refundd::store::Store;
use sqlx::{Connection, Executor};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

use crate::harness::Scratch;

/// A way to Postgres whose conversations of one moment can be left hanging: nothing is said any more,
/// and nobody hangs up. New ones work.
struct Way {
    address: SocketAddr,
    silent: watch::Sender<u64>,
}

impl Way {
    async fn to(socket: PathBuf) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, hushes) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut hushes = hushes.clone();
                hushes.borrow_and_update();
                let socket = socket.clone();
                tokio::spawn(async move {
                    let mut server = UnixStream::connect(socket).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut stream, &mut server) => {}
                        _ = hushes.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Way { address, silent }
    }

    fn hush(&self) {
        self.silent.send_modify(|hushes| *hushes += 1);
    }
}

/// The socket that a scratch's url names, and the same url by way of `address`.
fn by_way_of(scratch: &Scratch, way: impl Fn(PathBuf) -> Way) -> (Way, String) {
    let (start, query) = scratch.database_url.split_once("?host=").unwrap();
    let (folder, _) = query.split_once('&').unwrap();
    let (start, database) = start.rsplit_once('/').unwrap();
    let (start, port) = start.rsplit_once(':').unwrap();
    let way = way(PathBuf::from(folder).join(format!(".s.PGSQL.{port}")));
    let (user, _) = start.rsplit_once('@').unwrap();
    let url = format!("{user}@{}/{database}?sslmode=disable", way.address);
    (way, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_is_closed_and_another_takes_its_place() {
    let scratch = Scratch::new().await;
    let runtime = tokio::runtime::Handle::current();
    let (way, url) =
        by_way_of(&scratch, |socket| tokio::task::block_in_place(|| runtime.block_on(Way::to(socket))));
    let store = Store::open(&url, None, 1).unwrap();
    store.ping().await.unwrap();
    way.hush();
    let hushed = Instant::now();
    // On a busy machine the connection has rested for a second: it is checked before use then, and replaced without an error.
    if let Err(error) = store.ping().await {
        assert!(error.is_outage(), "{error:?}");
        store.ping().await.unwrap();
    }
    assert!(hushed.elapsed() < Duration::from_secs(8), "{:?}", hushed.elapsed());
}

#[tokio::test]
async fn a_connection_that_rested_is_not_trusted_blindly() {
    let scratch = Scratch::new().await;
    let store = Store::open(&scratch.database_url, None, 1).unwrap();
    store.ping().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut other = scratch.connect().await;
    let others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    other.execute(others).await.unwrap();
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_statement_that_was_given_up_halfway_leaves_nothing_behind() {
    let scratch = Scratch::new().await;
    let store = Store::open(&scratch.database_url, None, 1).unwrap();
    scratch.publish("acme").await;
    let mut other = scratch.connect().await;
    let mut block = other.begin().await.unwrap();
    block.execute("lock table refundd.channels in access exclusive mode").await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), store.suspensions()).await.is_err());
    store.ping().await.unwrap();
    block.rollback().await.unwrap();
    store.suspensions().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_somebody_keeps_is_an_outage_that_ends_in_time() {
    let scratch = Scratch::new().await;
    let store = Store::open(&scratch.database_url, None, 1).unwrap();
    let mut other = scratch.connect().await;
    let mut block = other.begin().await.unwrap();
    block.execute("lock table refundd.channels in access exclusive mode").await.unwrap();
    let error = store.suspensions().await.unwrap_err();
    assert!(error.is_outage(), "{error:?}");
    store.ping().await.unwrap();
}

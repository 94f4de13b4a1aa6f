//! Tests of the ways to servers: pointed elsewhere, deaf, closed, spoiled and far.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;

/// A server that answers every byte with `byte`.
fn server(folder: &Path, byte: u8) -> PathBuf {
    let socket = folder.join(char::from(byte).to_string());
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while stream.read_u8().await.is_ok() {
                    stream.write_all(&[byte]).await.unwrap();
                }
            });
        }
    });
    socket
}

async fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
    stream.write_all(b"?").await?;
    stream.read_u8().await
}

#[tokio::test]
async fn pointing_elsewhere_cuts_what_is_under_way_and_keeps_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (server(folder.path(), b'a'), server(folder.path(), b'b'));
    let forward = Forward::start(&a).unwrap();
    let address = forward.address();
    let mut old = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask(&mut old).await.unwrap(), b'a');
    forward.point(&b);
    assert!(forward.leads_to(&b));
    assert!(matches!(old.read(&mut [0]).await, Ok(0) | Err(_)), "the old conversation is over");
    let mut new = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask(&mut new).await.unwrap(), b'b');
    forward.point(&folder.path().join("nobody"));
    let mut vain = TcpStream::connect(address).await.unwrap();
    assert!(ask(&mut vain).await.is_err(), "nobody is there");
    drop(forward);
    let gone = async { while TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
}

#[tokio::test]
async fn a_deaf_way_keeps_what_it_swallowed_and_a_new_conversation_speaks_when_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let forward = Forward::start(&server(folder.path(), b'a')).unwrap();
    let mut old = TcpStream::connect(forward.address()).await.unwrap();
    assert_eq!(ask(&mut old).await.unwrap(), b'a');
    forward.set(Weather::Deaf);
    let silence = Duration::from_millis(100);
    assert!(tokio::time::timeout(silence, ask(&mut old)).await.is_err(), "no answer and no end");
    forward.set(Weather::Fair);
    assert!(tokio::time::timeout(silence, ask(&mut old)).await.is_err(), "it is deaf for good");
    let mut new = TcpStream::connect(forward.address()).await.unwrap();
    assert_eq!(ask(&mut new).await.unwrap(), b'a');
}

#[tokio::test]
async fn a_closed_way_refuses_and_opens_again_at_the_same_address() {
    let folder = tempfile::tempdir().unwrap();
    let forward = Forward::start(&server(folder.path(), b'a')).unwrap();
    let mut old = TcpStream::connect(forward.address()).await.unwrap();
    assert_eq!(ask(&mut old).await.unwrap(), b'a');
    forward.set(Weather::Closed);
    assert!(ask(&mut old).await.is_err());
    let refused = async { while TcpStream::connect(forward.address()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), refused).await.unwrap();
    forward.set(Weather::Fair);
    let opens = async { while TcpStream::connect(forward.address()).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(10), opens).await.unwrap();
}

#[tokio::test]
async fn a_dark_way_answers_no_new_connection_until_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let forward = Forward::start(&server(folder.path(), b'a')).unwrap();
    let mut old = TcpStream::connect(forward.address()).await.unwrap();
    assert_eq!(ask(&mut old).await.unwrap(), b'a');
    forward.set(Weather::Dark);
    let silence = Duration::from_millis(100);
    let dark =
        async { while tokio::time::timeout(silence, TcpStream::connect(forward.address())).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), dark).await.unwrap();
    assert!(tokio::time::timeout(silence, ask(&mut old)).await.is_err(), "no answer and no end");
    forward.set(Weather::Fair);
    let opens = async {
        loop {
            if let Ok(mut new) = TcpStream::connect(forward.address()).await
                && ask(&mut new).await.is_ok()
            {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), opens).await.unwrap();
}

#[tokio::test]
async fn answers_are_spoiled_as_the_weather_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let forward = Forward::start(&server(folder.path(), b'a')).unwrap();
    let new = async || TcpStream::connect(forward.address()).await.unwrap();
    forward.set(Weather::Garbage);
    assert_ne!(ask(&mut new().await).await.unwrap(), b'a');
    forward.set(Weather::Resets);
    // The reset may come while the connection is set up, or with the answer.
    if let Ok(mut reset) = TcpStream::connect(forward.address()).await {
        assert!(ask(&mut reset).await.is_err());
    }
    forward.set(Weather::Cuts(1));
    let mut cut = new().await;
    assert_eq!(ask(&mut cut).await.unwrap(), b'a');
    assert!(ask(&mut cut).await.is_err());
    forward.set(Weather::Slow(Duration::from_millis(80)));
    let started = std::time::Instant::now();
    assert_eq!(ask(&mut new().await).await.unwrap(), b'a');
    assert!(started.elapsed() >= Duration::from_millis(80));
}

/// A server that sends every byte back.
fn echo(folder: &Path) -> PathBuf {
    let socket = folder.join("echo");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                tokio::io::copy(&mut from, &mut to).await.ok();
            });
        }
    });
    socket
}

#[tokio::test]
async fn a_far_server_is_set_up_late_once_and_answers_a_round_trip_later() {
    const MS: Duration = Duration::from_millis(1);
    let folder = tempfile::tempdir().unwrap();
    let forward = Forward::start(&server(folder.path(), b'a')).unwrap();
    forward.set_distance(Distance {
        set_up: 150 * MS,
        there: 40 * MS,
        back: 30 * MS,
        jitter: Duration::ZERO,
    });
    let mut far = TcpStream::connect(forward.address()).await.unwrap();
    let mut took = Vec::new();
    for _ in 0..6 {
        let started = std::time::Instant::now();
        assert_eq!(ask(&mut far).await.unwrap(), b'a');
        took.push(started.elapsed());
    }
    assert!(took[0] >= 180 * MS && took[1..].iter().all(|later| *later >= 70 * MS), "{took:?}");
    // A busy machine makes some answers late. With the set-up, each would take 220 ms.
    assert!(took[1..].iter().any(|later| *later < 170 * MS), "the set-up is waited for once: {took:?}");
}

#[tokio::test]
async fn jitter_neither_reorders_nor_throttles_a_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let forward = Forward::start(&echo(folder.path())).unwrap();
    let way = Duration::from_millis(50);
    let jitter = Duration::from_millis(30);
    forward.set_distance(Distance { set_up: Duration::ZERO, there: way, back: way, jitter });
    let far = TcpStream::connect(forward.address()).await.unwrap();
    far.set_nodelay(true).unwrap();
    let (mut from, mut to) = far.into_split();
    let began = std::time::Instant::now();
    let sent: Vec<u8> = (0..200).collect();
    let bytes = sent.clone();
    tokio::spawn(async move {
        for byte in bytes {
            to.write_all(&[byte]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::future::pending::<()>().await;
    });
    let mut echoed = vec![0; sent.len()];
    from.read_exact(&mut echoed).await.unwrap();
    let took = began.elapsed();
    assert_eq!(echoed, sent);
    assert!(took >= 2 * way && took < Duration::from_secs(2), "200 pieces took {took:?}");
}

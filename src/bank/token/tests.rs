//! Many tasks need a token at one time, and a real server counts the requests.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicU32;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::config::Config;

/// Tokens of a server that answers every request so after 100 ms, and how many requests came.
async fn tokens(status: &'static str, body: &'static str) -> (Tokens, Arc<AtomicU32>) {
    tokens_under("secret", status, body.to_owned()).await
}

/// The same for this secret of the client.
async fn tokens_under(client_secret: &str, status: &'static str, body: String) -> (Tokens, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (count, body) = (Arc::clone(&count), body.clone());
            tokio::spawn(async move {
                let (mut request, mut piece) = (Vec::new(), [0; 1024]);
                while !request.ends_with(b"grant_type=client_credentials") {
                    let length = stream.read(&mut piece).await.unwrap_or(0);
                    if length == 0 {
                        return;
                    }
                    request.extend_from_slice(&piece[..length]);
                }
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.ok();
            });
        }
    });
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), client_secret).unwrap();
    std::fs::set_permissions(secret.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let config = Config::of_tables(&format!(
        "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n\
         token = {{ url = \"http://{address}/\", client_id = \"refundd\", client_secret_file = \"{}\" }}\n",
        secret.path().display()
    ));
    let channel = config.channels.values().next().unwrap();
    (Tokens::of(channel).unwrap().unwrap(), requests)
}

async fn ask_twenty_times(tokens: &Tokens) -> Vec<Result<Arc<BankToken>, Unreachable>> {
    join_all((0..20).map(|_| tokens.good_until(Instant::now()))).await
}

#[tokio::test]
async fn twenty_tasks_get_one_token_by_one_request() {
    let (tokens, requests) =
        tokens("200 OK", r#"{"access_token":"t","token_type":"Bearer","expires_in":300}"#).await;
    for _ in 0..2 {
        let got = ask_twenty_times(&tokens).await;
        assert!(got.into_iter().all(|token| token.is_ok_and(|token| token.number == 1)));
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn twenty_tasks_share_one_refusal() {
    let (tokens, requests) = tokens("401 Unauthorized", r#"{"error":"invalid_client"}"#).await;
    for _ in 0..2 {
        for refused in ask_twenty_times(&tokens).await {
            let Unreachable { code, message, retry_in } = refused.unwrap_err();
            assert_eq!(code, Code::TokenFailed);
            assert!(message.ends_with("/: HTTP 401, error \"invalid_client\""), "{message}");
            assert!(retry_in > Duration::from_secs(20), "{retry_in:?}");
        }
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_secret_that_the_token_server_repeats_is_hidden_before_digits_and_cuts_and_in_each_of_its_forms() {
    let (long, coded) = ("s3cret-".repeat(30), "a+secret+%26+more");
    let login = format!("refundd:{coded}");
    let header = format!("Basic {}", STANDARD.encode(&login));
    for (secret, said, shown) in [
        (long.as_str(), format!("bad secret {long}"), "bad secret ****"),
        ("key-1234567890-key", "bad secret key-1234567890-key".to_owned(), "bad secret ****"),
        ("a secret & more", "bad secret a secret & more!".to_owned(), "bad secret ****!"),
        ("a secret & more", format!("client_secret={coded}"), "client_secret=****"),
        ("a secret & more", format!("bad login {login}"), "bad login ****"),
        ("a secret & more", format!("bad header {header}"), "bad header ****"),
    ] {
        let body = serde_json::json!({ "error": said }).to_string();
        let (tokens, _) = tokens_under(secret, "401 Unauthorized", body).await;
        let Unreachable { message, .. } = tokens.good_until(Instant::now()).await.unwrap_err();
        assert!(message.ends_with(&format!("/: HTTP 401, error \"{shown}\"")), "{said}: {message}");
    }
}

#[tokio::test]
async fn a_401_replaces_an_accepted_token_once_a_minute_and_no_new_one() {
    let (tokens, _) =
        tokens("200 OK", r#"{"access_token":"t","token_type":"Bearer","expires_in":300}"#).await;
    let next = async || tokens.good_until(Instant::now()).await.unwrap();
    let new = next().await;
    assert_eq!(tokens.answered(&new, 401), Some(RefusedToken::Useless));
    let accepted = next().await;
    assert_eq!(tokens.answered(&accepted, 200), None);
    assert_eq!(tokens.answered(&accepted, 401), Some(RefusedToken::Replaced));
    assert_eq!(tokens.answered(&accepted, 401), Some(RefusedToken::Replaced), "a second request under it");
    let third = next().await;
    assert_eq!((new.number, accepted.number, third.number), (1, 2, 3));
    assert_eq!(tokens.answered(&third, 422), None);
    assert_eq!(tokens.answered(&third, 401), Some(RefusedToken::Useless), "within a minute");
}

/// [`Instant`]s stand still meanwhile, so the token may be over although it seems to be new.
#[tokio::test]
async fn a_token_from_before_the_machine_slept_is_not_used() {
    let (tokens, requests) =
        tokens("200 OK", r#"{"access_token":"t","token_type":"Bearer","expires_in":300}"#).await;
    let token = tokens.good_until(Instant::now()).await.unwrap();
    let (header, was_taken) = (token.header.clone(), AtomicBool::new(false));
    let before_a_sleep = BankToken { header, was_taken, slept: Slept::a_second_ago(), ..*token };
    tokens.state().token = Some(Arc::new(before_a_sleep));
    for _ in 0..2 {
        assert_eq!(tokens.good_until(Instant::now()).await.unwrap().number, 2);
    }
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

//! Reads the answer of a token server: status and body in, token or reason out. Pure, and tested as a table.

use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::Value;

use crate::bank::Secrets;
use crate::bank::json::without_mark;
use crate::bank::outcome::message;

/// The life of a token whose end the server does not name.
const LIFE: Duration = Duration::from_mins(5);
/// A token that ends later than this is asked for anew all the same.
const LONGEST_LIFE: Duration = Duration::from_hours(24);

/// What servers call a bearer token. The second is the default of Apigee.
const KINDS: [&str; 2] = ["Bearer", "BearerToken"];

/// The header that carries a new token, and how long the token lives.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bank) struct NewToken {
    pub header: HeaderValue,
    pub life: Duration,
}

/// Why an answer has no token.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bank) struct NoToken {
    pub why: String,
    /// The server refused the client, or its answer makes no sense: the next try will probably end so, too.
    pub is_lasting: bool,
}

/// Reads one whole answer to a request with these secrets.
pub(in crate::bank) fn read(status: u16, body: &[u8], secrets: Secrets<'_>) -> Result<NewToken, NoToken> {
    let json = serde_json::from_slice::<Value>(without_mark(body)).ok();
    if status != 200 {
        let is_lasting = (400..500).contains(&status) && status != 429 && status != 408;
        return Err(NoToken { why: message(status, None, json.as_ref(), secrets), is_lasting });
    }
    let of = |field: &str| json.as_ref().and_then(|json| json.get(field));
    let text = |field: &str| of(field).and_then(Value::as_str);
    let unusable = |why: &str| NoToken { why: why.to_owned(), is_lasting: true };
    let token = text("access_token").ok_or_else(|| unusable("the answer has no `access_token`"))?;
    let is_bearer = |kind: &str| KINDS.iter().any(|known| kind.eq_ignore_ascii_case(known));
    if !text("token_type").is_some_and(is_bearer) {
        return Err(unusable("the `token_type` of the answer is not \"Bearer\""));
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| unusable("the token holds bytes that no header may hold"))?;
    header.set_sensitive(true);
    let life = match of("expires_in") {
        None | Some(Value::Null) => LIFE,
        Some(life) => {
            let whole = life.as_u64().or_else(|| life.as_str()?.parse().ok()).map(Duration::from_secs);
            let life = whole.or_else(|| floored(life.as_f64()?)).filter(|life| !life.is_zero());
            life.ok_or_else(|| unusable("`expires_in` is no number of seconds"))?
        }
    };
    Ok(NewToken { header, life: life.min(LONGEST_LIFE) })
}

/// The whole seconds of a life that is written as a floating-point number, such as `3600.0`.
fn floored(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.floor().min(LONGEST_LIFE.as_secs_f64())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_life_and_hides_itself() {
        for (body, seconds) in [
            (r#"{"access_token":"t-1","token_type":"Bearer","expires_in":60}"#, 60),
            (r#"{"access_token":"t-1","token_type":"bearer","expires_in":"60","scope":"a"}"#, 60),
            (r#"{"access_token":"t-1","token_type":"BearerToken","expires_in":"60"}"#, 60),
            (r#"{"access_token":"t-1","token_type":"Bearer"}"#, 300),
            ("\u{feff}{\"access_token\":\"t-1\",\"token_type\":\"Bearer\"}", 300),
            (r#"{"access_token":"t-1","token_type":"Bearer","expires_in":99999999}"#, 86_400),
            (r#"{"access_token":"t-1","token_type":"Bearer","expires_in":3600.0}"#, 3_600),
            (r#"{"access_token":"t-1","token_type":"Bearer","expires_in":59.9}"#, 59),
            (r#"{"access_token":"t-1","token_type":"Bearer","expires_in":1e300}"#, 86_400),
        ] {
            let token = read(200, body.as_bytes(), Secrets::default()).unwrap();
            assert_eq!((token.header.to_str().unwrap(), token.life.as_secs()), ("Bearer t-1", seconds));
            assert!(!format!("{token:?}").contains("t-1"));
        }
    }

    #[test]
    fn an_answer_without_a_token_says_why_and_whether_to_hurry() {
        for (status, body, why, is_lasting) in [
            (401, r#"{"error":"invalid_client"}"#, "HTTP 401, error \"invalid_client\"", true),
            (429, "", "HTTP 429", false),
            (503, "<html>", "HTTP 503", false),
            (302, "", "HTTP 302", false),
            (200, "<html>", "no `access_token`", true),
            (200, r#"{"access_token":7,"token_type":"Bearer"}"#, "no `access_token`", true),
            (200, r#"{"access_token":"t","token_type":"mac"}"#, "not \"Bearer\"", true),
            (200, r#"{"access_token":"t"}"#, "not \"Bearer\"", true),
            (200, r#"{"access_token":"t\u0000","token_type":"Bearer"}"#, "no header", true),
            (200, r#"{"access_token":"t","token_type":"Bearer","expires_in":0}"#, "no number", true),
            (200, r#"{"access_token":"t","token_type":"Bearer","expires_in":-1}"#, "no number", true),
            (200, r#"{"access_token":"t","token_type":"Bearer","expires_in":0.9}"#, "no number", true),
            (200, r#"{"access_token":"t","token_type":"Bearer","expires_in":-3600.5}"#, "no number", true),
        ] {
            let no = read(status, body.as_bytes(), Secrets::default()).unwrap_err();
            assert!(no.why.contains(why) && no.is_lasting == is_lasting, "{status} {body}: {no:?}");
        }
    }
}

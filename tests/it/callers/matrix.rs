//! Every route × every scope × an own and a foreign channel, made from the router's own table.

use std::collections::BTreeMap;

use hyper::Method;
use refundd::caller::scope::CallerScope;
use refundd::caller::token::Token;
use refundd::http::access::Needs;
use refundd::http::routes::{Route, table};
use serde_json::{Value, json};

use super::{CallerTables, TWO_CHANNELS, ask, bearer, post_form};
use crate::harness::node::{Answer, refund};
use crate::harness::{Scratch, TestNode, until};

/// One request to a route, about one channel.
struct Call {
    path: String,
    body: Body,
    /// Whether the answer shows something of the channel.
    shows: fn(&Answer) -> bool,
}

/// What a request brings.
enum Body {
    Json(Value),
    /// The fields of a form of the page, beside its key.
    Form(String),
}

/// Its limit grants nothing for a moment at the end of a window, and after its count was restored: 429 to a caller who is let in.
const ACQUIRE: &str = "/v1/limits/{name}/acquire";

fn is_found(answer: &Answer) -> bool {
    answer.status.is_success()
}

/// A route about all channels, which no caller with some channels may use.
fn is_about_everything(route: &Route) -> bool {
    matches!(route.path, "/v1/pause" | "/v1/resume" | "/pause" | "/resume")
}

/// How the matrix calls a route about a channel. `id` is a refund and a proposal of that channel, `number` is new for each call. `None`
/// if the route is about no channel.
fn call(route: &Route, channel: &str, id: i64, number: usize) -> Option<Call> {
    let call = |path: String, body, shows| Some(Call { path, body: Body::Json(body), shows });
    let form = |path: String, fields: String, shows| Some(Call { path, body: Body::Form(fields), shows });
    let new = refund(&format!("M-{number}"), channel);
    let path = route.path.replace("{id}", &id.to_string()).replace("{name}", channel);
    match (route.method.as_str(), route.path) {
        ("POST", "/v1/refunds") => call(path, new, is_found),
        ("GET", "/v1/refunds") => call(format!("{path}?channel={channel}"), Value::Null, |answer| {
            answer.json()["refunds"].as_array().is_some_and(|refunds| !refunds.is_empty())
        }),
        ("POST", "/v1/refunds/batch") => call(path, json!([new]), |answer| answer.json()[0]["status"] != 404),
        ("POST", "/v1/refunds/{id}/cancel")
        | (
            "GET",
            "/v1/refunds/{id}"
            | "/v1/refunds/{id}/attempts"
            | "/v1/channels/{name}"
            | "/channels/{name}"
            | "/refunds/{id}",
        ) => call(path, Value::Null, is_found),
        ("POST", "/v1/channels/{name}/resume") => call(path, json!({}), is_found),
        ("POST", ACQUIRE) => {
            call(path, json!({}), |answer| answer.status.is_success() || answer.status == 429)
        }
        ("POST", "/v1/review") => {
            let body =
                json!({ "refunds": [{ "id": id, "version": 1 }], "state": "failed", "reason": "a test" });
            call(path, body, |answer| answer.json()["results"][0]["result"] != "no_such_refund")
        }
        ("GET", "/v1/proposals") => call(format!("{path}?channel={channel}"), Value::Null, |answer| {
            answer.json()["proposals"].as_array().is_some_and(|proposals| !proposals.is_empty())
        }),
        ("POST", "/v1/proposals/approve") => {
            let body = json!({ "proposals": [{ "id": id, "version": 7 }], "reason": "a test" });
            call(path, body, |answer| answer.json()["results"][0]["result"] != "no_such_proposal")
        }
        ("POST", "/v1/proposals/withdraw") => {
            let body = json!({ "proposals": [id], "reason": "a test" });
            call(path, body, |answer| answer.json()["results"][0]["result"] != "no_such_proposal")
        }
        ("GET", "/v1/refunds/find") => call(format!("{path}?q={id}"), Value::Null, is_found),
        ("GET", "/v1/suspensions") => match channel {
            "acme" => call(path, Value::Null, |answer| answer.text.contains("\"channel\":\"acme\"")),
            _ => call(path, Value::Null, |answer| answer.text.contains("\"channel\":\"other\"")),
        },
        ("GET", "/v1/changes") => call(format!("{path}?channel={channel}"), Value::Null, |answer| {
            answer.json()["changes"].as_array().is_some_and(|changes| !changes.is_empty())
        }),
        ("GET", "/v1/events") => call(format!("{path}?channel={channel}"), Value::Null, |answer| {
            answer.json()["events"].as_array().is_some_and(|events| !events.is_empty())
        }),
        ("POST", "/v1/channels/{name}/pause" | "/v1/pause" | "/v1/resume") => {
            call(path, json!({ "reason": "a test" }), is_found)
        }
        // The callers have a second channel of their own.
        ("POST", "/v1/channels/{name}/move") => {
            let body = json!({ "to": "spare", "refund_refs": ["none"], "reason": "a test" });
            call(path, body, is_found)
        }
        ("GET", "/") => {
            call(format!("/?q={channel}"), Value::Null, |answer| answer.text.contains("rowheader"))
        }
        ("GET", "/refunds") => call(format!("/refunds?q={id}"), Value::Null, |answer| answer.status == 303),
        ("GET", "/review" | "/approvals" | "/events") => {
            call(format!("{path}?channel={channel}"), Value::Null, |answer| answer.text.contains("rowheader"))
        }
        ("GET", "/proof") => call(format!("/proof?channel={channel}"), Value::Null, is_found),
        ("POST", "/channels/{name}/pause" | "/channels/{name}/resume" | "/pause" | "/resume") => {
            form(path, "reason=a+test".to_owned(), |answer| answer.status == 303)
        }
        ("POST", "/refunds/{id}/cancel") => {
            form(path, "version=1&reason=a+test".to_owned(), |answer| answer.status == 303)
        }
        ("POST", "/approvals/approve" | "/approvals/withdraw") => {
            let fields = format!("proposal={id}%407&reason=a+test");
            form(path, fields, |answer| !answer.text.contains("no proposal has this id"))
        }
        ("POST", "/review") => {
            let fields = format!("refund={id}%401&state=failed&reason=a+test");
            form(path, fields, |answer| !answer.text.contains("no refund has this id"))
        }
        (
            "GET",
            "/v1/channels" | "/v1/openapi.json" | "/health/live" | "/health/ready" | "/metrics" | "/nodes"
            | "/page.css" | "/page.js" | "/page.svg",
        ) => None,
        (method, path) => panic!("the matrix does not know {method} {path}: write how it calls that route"),
    }
}

#[tokio::test]
async fn each_route_lets_in_its_scope_alone_and_shows_own_channels_alone() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let tokens: BTreeMap<CallerScope, Token> = CallerScope::ALL
        .into_iter()
        .map(|scope| {
            let keys = format!("may = [\"{scope}\"]\nchannels = [\"acme\", \"spare\"]\nlimits = [\"acme\"]");
            (scope, callers.caller(scope.as_str(), &keys))
        })
        .collect();
    let spare = "[channel.spare]\nendpoint = \"http://{bank}/spare/refunds\"\nlimits = []\n";
    let node = callers.node_with(&scratch, &format!("{TWO_CHANNELS}{spare}")).await;
    scratch.insert("acme", "own-", 3).await;
    scratch.insert("other", "foreign-", 3).await;
    for channel in ["acme", "other"] {
        scratch.insert(channel, &format!("review-{channel}-"), 1).await;
    }
    scratch.to_review("refund_ref like 'review-%'").await;
    let (own, foreign) = (id_of(&scratch, "own-1").await, id_of(&scratch, "foreign-1").await);
    // Proposals about the other refunds, which no call moves. Each has the id of a refund of its channel. Calls end the first
    // of each channel, and the second stays listed.
    scratch
        .sql(
            "insert into refundd.proposals (id, refund_id, channel, version, moves_to, confirms_not_executed, needed_for, reason, proposed_by)
             overriding system value
             select r.id, about.id, r.channel, 1, 'failed', false, 'amount', 'a test', 'ann'
               from refundd.refunds r join refundd.refunds about on about.channel = r.channel
              where (r.refund_ref, about.refund_ref) in (('own-1', 'own-2'), ('own-2', 'own-3'),
                                                         ('foreign-1', 'foreign-2'), ('foreign-2', 'foreign-3'))",
        )
        .await;
    // A new limit rests for a moment, and grants nothing meanwhile.
    let acquire = tokens.get(&CallerScope::Acquire);
    until("the limit grants", async || {
        let path = "/v1/limits/acme/acquire";
        ask(&node, acquire, Method::POST, path, &json!({})).await.status == 200
    })
    .await;
    let mut cells = 0;
    for route in table() {
        let about = [("acme", own), ("other", foreign)];
        for (channel, id) in about {
            let strangers = std::iter::once((None, None));
            for (scope, token) in
                strangers.chain(tokens.iter().map(|(scope, token)| (Some(*scope), Some(token))))
            {
                cells += 1;
                let call = call(&route, channel, id, cells);
                let nothing =
                    Call { path: route.path.to_owned(), body: Body::Json(Value::Null), shows: is_found };
                let is_about_channels = call.is_some();
                let Call { path, body, shows } = call.unwrap_or(nothing);
                let answer = match body {
                    Body::Json(body) => ask(&node, token, route.method.clone(), &path, &body).await,
                    Body::Form(fields) => {
                        post_form(&node, token.map(bearer).as_deref(), &path, &fields).await
                    }
                };
                let cell = format!("{} {path} by {scope:?}: {answer:?}", route.method);
                let status = answer.status.as_u16();
                match route.needs {
                    Needs::Nothing => assert_eq!(status, 200, "{cell}"),
                    Needs::Scope(_) if scope.is_none() => assert_eq!(status, 401, "{cell}"),
                    Needs::Scope(needed) if scope != Some(needed) => assert_eq!(status, 403, "{cell}"),
                    Needs::Scope(_) if is_about_everything(&route) => assert_eq!(status, 403, "{cell}"),
                    Needs::Scope(_) if channel == "acme" || !is_about_channels => {
                        let may_wait = route.path == ACQUIRE && status == 429;
                        assert!(((200..400).contains(&status) || may_wait) && shows(&answer), "{cell}");
                    }
                    Needs::Scope(_) => {
                        assert!(matches!(status, 200 | 404) && !shows(&answer), "{cell}");
                    }
                }
            }
        }
        if route.method == Method::GET {
            let head = ask(&node, None, Method::HEAD, route.path, &Value::Null).await;
            let expected = if route.needs == Needs::Nothing { 200 } else { 401 };
            assert_eq!(head.status, expected, "HEAD {}", route.path);
        }
    }
    assert_eq!(cells, table().len() * 2 * (CallerScope::ALL.len() + 1));
    // Nothing of the foreign channel came to be.
    let foreign = scratch.text("select string_agg(refund_ref || ' ' || state || ' ' || version, ', ' order by id) from refundd.refunds where channel = 'other'").await;
    assert_eq!(foreign, "foreign-1 ready 1, foreign-2 ready 1, foreign-3 ready 1, review-other-1 review 3");
    let open = "select count(*) from refundd.proposals where channel = 'other' and ended_as is null";
    assert_eq!(scratch.number(open).await, 2);
    assert_eq!(
        scratch
            .number("select count(*) from refundd.channels where channel = 'other' and paused_at is not null")
            .await,
        0
    );
    assert_eq!(scratch.number("select count(*) from refundd.permits where limit_name = 'other'").await, 0);
    node.stop().await;
}

async fn id_of(scratch: &Scratch, refund_ref: &str) -> i64 {
    scratch.number(&format!("select id from refundd.refunds where refund_ref = '{refund_ref}'")).await
}

#[tokio::test]
async fn the_channels_of_others_are_not_listed() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    let desk = callers.caller("desk", "may = [\"look\"]\nchannels = [\"*\"]");
    let node: TestNode = callers.node(&scratch).await;
    for (token, channels) in [(&shop, vec!["acme"]), (&desk, vec!["acme", "other"])] {
        let listed = super::get(&node, token, "/v1/channels").await.json();
        let names: Vec<_> =
            listed["channels"].as_array().unwrap().iter().map(|one| one["channel"].clone()).collect();
        assert_eq!(names, channels);
    }
    node.stop().await;
}

#[test]
fn the_scopes_in_the_docs_are_those_of_the_router() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http.md")).unwrap();
    for route in table() {
        let row = match route.needs {
            Needs::Nothing => "| no token needed |".to_owned(),
            Needs::Scope(scope) => format!("| `{scope}` |"),
        };
        let named = format!("`{} {}`", route.method, route.path);
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with(&row)).collect();
        assert!(
            rows.iter().any(|line| line.contains(&named)),
            "docs/http.md has no {named} in the row {row}"
        );
    }
}

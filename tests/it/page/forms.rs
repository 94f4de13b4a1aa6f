//! The forms of the page: what a person may do with them, who may not, and what another page cannot make a browser do.

use hyper::Method;
use refundd::caller::token::Token;
use refundd::refund::{RefundId, State};

use super::see;
use crate::callers::{CallerTables, TWO_CHANNELS, basic, post_form};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn a_form_pauses_and_resumes_a_channel_with_a_reason_and_a_name() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let paused = post_form(&node, None, "/channels/acme/pause", "reason=bank%27s+maintenance&by=ann").await;
    assert_eq!(
        (paused.status.as_u16(), &paused.headers["location"]),
        (303, &"/channels/acme?done=paused".parse().unwrap())
    );
    let why = "select paused_by || ': ' || pause_reason from refundd.channels";
    assert_eq!(scratch.text(why).await, "ann: bank's maintenance");
    for (fields, named) in [
        ("by=ann", "Reason"),
        ("reason=+&by=ann", "Reason"),
        ("reason=r", "Your name"),
        ("reason=a%E2%80%AEb&by=ann", "U+202E"),
        ("reason=4111+1111+1111+1111&by=ann", "card number"),
    ] {
        let refused = post_form(&node, None, "/channels/acme/pause", fields).await;
        assert!(refused.status == 422 && refused.text.contains(named), "{fields}: {refused:?}");
        assert!(!refused.text.contains("4111"), "{refused:?}");
    }
    assert_eq!(scratch.text(why).await, "ann: bank's maintenance");
    assert_eq!(post_form(&node, None, "/channels/none/pause", "reason=r&by=ann").await.status, 404);
    let resumed = post_form(&node, None, "/channels/acme/resume", "by=ann").await;
    assert_eq!(resumed.status, 303, "{resumed:?}");
    assert_eq!(scratch.number("select count(*) from refundd.channels where paused_at is not null").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_form_decides_about_many_refunds_and_not_about_one_that_moved_since() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    scratch.insert("acme", "R-", 3).await;
    scratch.to_review("true").await;
    let list = see(&node, "/review").await.text;
    for id in 1..=3 {
        assert!(list.contains(&format!(r#"value="{id}@3""#)), "{list}");
    }
    // Somebody else decides meanwhile.
    scratch.decide(RefundId(3), State::Failed, "the bank says so", "bob").await;
    let decided = post_form(
        &node,
        None,
        "/review",
        "refund=1%403&refund=2%403&refund=3%403&state=succeeded&reason=on+the+statement&by=ann",
    )
    .await;
    assert!(decided.status == 200 && decided.text.contains("2 of 3 refunds decided"), "{decided:?}");
    assert!(decided.text.contains("<h1>Decided</h1>"), "{decided:?}");
    assert!(decided.text.contains("it has moved since that version"), "{decided:?}");
    let states = scratch
        .text("select string_agg(state || ' ' || version, ', ' order by id) from refundd.refunds")
        .await;
    assert_eq!(states, "succeeded 4, succeeded 4, failed 4");
    let evidence = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(evidence.last().map(|last| last.node.as_str()), Some("ann"));
    // What may have been executed is sent again only with a confirmation.
    scratch.insert("acme", "S-", 1).await;
    scratch.to_review("refund_ref = 'S-1'").await;
    let unconfirmed = post_form(&node, None, "/review", "refund=4%403&state=ready&reason=r&by=ann").await;
    assert!(unconfirmed.text.contains("may have been executed"), "{unconfirmed:?}");
    assert!(unconfirmed.text.contains("<h1>Nothing was decided</h1>"), "{unconfirmed:?}");
    assert_eq!(scratch.count(State::Review).await, 1);
    let confirmed =
        post_form(&node, None, "/review", "refund=4%403&state=ready&confirm=not_executed&reason=r&by=ann")
            .await;
    assert!(confirmed.text.contains("0 of 1 refund decided"), "{confirmed:?}");
    assert!(confirmed.text.contains("1 waits for a second person"), "{confirmed:?}");
    for (fields, named) in [
        ("state=failed&reason=r&by=ann", "none is chosen"),
        ("refund=1&state=failed&reason=r&by=ann", "choose at least one"),
        ("refund=1%40x&state=failed&reason=r&by=ann", "choose at least one"),
        ("refund=1%403&state=done&reason=r&by=ann", "choose one of the results"),
        ("refund=1%403&state=failed&by=ann", "Reason"),
    ] {
        let refused = post_form(&node, None, "/review", fields).await;
        assert!(refused.status == 422 && refused.text.contains(named), "{fields}: {refused:?}");
    }
    node.stop().await;
}

/// What is wrong, the origin, the content type, the cookie, the body, and the status of the answer.
type Attack<'a> = (&'a str, Option<&'a str>, &'a str, Option<&'a str>, &'a str, u16);

#[tokio::test]
async fn a_form_that_another_page_made_a_browser_send_changes_nothing() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let may = "may = [\"look\", \"operate\", \"review\", \"approve\", \"cancel\"]\nchannels = [\"*\"]";
    let desk = callers.caller("desk", may);
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    let own = format!("http://{}", node.daemon.address());
    let (login, cookie) = (basic("ann", &desk), format!("refundd_form={KEY}"));
    let good = format!("key={KEY}&reason=r");
    let attacks: [Attack<'_>; 8] = [
        ("a page of another origin", Some("https://evil.example"), FORM, Some(&cookie), &good, 403),
        ("a page in a sandbox", Some("null"), FORM, Some(&cookie), &good, 403),
        ("another port of this host", Some("http://127.0.0.1:1"), FORM, Some(&cookie), &good, 403),
        ("no origin", None, FORM, Some(&cookie), &good, 403),
        ("no cookie", Some(&own), FORM, None, &good, 403),
        ("no key", Some(&own), FORM, Some(&cookie), "reason=r", 403),
        (
            "another key",
            Some(&own),
            FORM,
            Some(&cookie),
            "key=0123456789abcdef0123456789abcde0&reason=r",
            403,
        ),
        ("a body of another kind", Some(&own), "text/plain", Some(&cookie), &good, 415),
    ];
    for path in [
        "/channels/acme/pause",
        "/channels/acme/resume",
        "/pause",
        "/resume",
        "/refunds/1/cancel",
        "/review",
        "/approvals/approve",
        "/approvals/withdraw",
    ] {
        for (what, origin, kind, cookie, body, status) in attacks {
            let mut headers =
                vec![("authorization", login.as_str()), ("content-type", kind), ("accept", "text/html")];
            headers.extend(origin.map(|origin| ("origin", origin)));
            headers.extend(cookie.map(|cookie| ("cookie", cookie)));
            let answer = node.request_with(Method::POST, path, &headers, body).await;
            assert_eq!(answer.status, status, "{path}, {what}: {answer:?}");
        }
    }
    assert_eq!(scratch.suspensions().await, 0);
    // A cookie without a value is no key, also with an empty key beside it.
    let empty = [
        ("authorization", login.as_str()),
        ("content-type", FORM),
        ("origin", &own),
        ("cookie", "refundd_form="),
    ];
    assert_eq!(
        node.request_with(Method::POST, "/channels/acme/pause", &empty, "key=&reason=r").await.status,
        403
    );
    // The browser gets the cookie with the page, for this site alone and hidden from scripts.
    let page = node.request_with(Method::GET, "/channels/acme", &[("authorization", &login)], "").await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("SameSite=Lax") && cookie.contains("HttpOnly"), "{cookie}");
    // A browser would not keep a secure cookie of a page in clear text.
    assert!(cookie.starts_with("refundd_form=") && !cookie.contains("Secure"), "{cookie}");
    assert!(!page.headers.contains_key("strict-transport-security"));
    let key = cookie.split(['=', ';']).nth(1).unwrap();
    assert!(page.text.contains(&format!(r#"name="key" value="{key}""#)), "{cookie}: {}", page.text);
    assert_eq!(post_form(&node, Some(&login), "/channels/acme/pause", "reason=r").await.status, 303);
    node.stop().await;
}

#[tokio::test]
async fn a_browser_logs_in_with_the_token_as_its_password_on_pages_alone() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"look\", \"operate\", \"review\"]\nchannels = [\"acme\"]");
    let viewer = callers.caller("viewer", "may = [\"look\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    scratch.insert("acme", "R-", 1).await;
    scratch.to_review("true").await;
    let get = async |path: &str, login: Option<&str>| {
        let mut headers = vec![("accept", "text/html")];
        headers.extend(login.map(|login| ("authorization", login)));
        node.request_with(Method::GET, path, &headers, "").await
    };
    let pages = [
        "/",
        "/channels/acme",
        "/refunds",
        "/refunds/1",
        "/review",
        "/approvals",
        "/events",
        "/proof",
        "/nodes",
    ];
    for path in pages {
        let stranger = get(path, None).await;
        assert_eq!(stranger.status, 401, "{path}");
        assert_eq!(stranger.headers["www-authenticate"], "Basic realm=\"refundd\", charset=\"UTF-8\"");
        assert!(stranger.text.contains("Log in") && !stranger.text.contains("acme"), "{}", stranger.text);
        for user in ["", "ann", "desk", "a:b"] {
            let expected = if user.contains(':') { 401 } else { 200 };
            assert_eq!(get(path, Some(&basic(user, &desk))).await.status, expected, "{path} as `{user}`");
        }
        let wrong = Token::mint().unwrap();
        assert_eq!(get(path, Some(&basic("ann", &wrong))).await.status, 401, "{path}");
        assert_eq!(get(path, Some("Basic !")).await.status, 401, "{path}");
    }
    // A browser sends the password with every request that any page causes, so the routes of programs do not take it.
    for path in ["/v1/channels", "/v1/refunds/1", "/metrics"] {
        let refused =
            node.request_with(Method::GET, path, &[("authorization", &basic("ann", &desk))], "").await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"), "{path}");
    }
    // The page offers what the caller may do, and names the caller.
    let (desk, viewer) = (basic("ann", &desk), basic("ann", &viewer));
    for (path, form) in [
        ("/channels/acme", "/channels/acme/pause"),
        ("/review", "Write the decision"),
        ("/refunds/1", "Write the decision"),
    ] {
        let (may, may_not) = (get(path, Some(&desk)).await.text, get(path, Some(&viewer)).await.text);
        assert!(may.contains(form) && may.contains("You are the caller"), "{path}: {may}");
        assert!(!may_not.contains(form), "{path}: {may_not}");
        assert!(!may.contains("name=\"by\""), "{path}: the caller is who acts");
    }
    let overview = get("/", Some(&desk)).await.text;
    assert!(overview.contains("/channels/acme") && !overview.contains("other"), "{overview}");
    for path in ["/channels/other", "/review?channel=other", "/events?channel=other", "/proof?channel=other"]
    {
        let foreign = get(path, Some(&desk)).await;
        assert!(foreign.status == 404 || !foreign.text.contains("rowheader"), "{path}: {foreign:?}");
    }
    assert_eq!(
        post_form(&node, Some(&viewer), "/review", "refund=1%403&state=failed&reason=r").await.status,
        403
    );
    let decided = post_form(&node, Some(&desk), "/review", "refund=1%403&state=failed&reason=r").await;
    assert!(decided.text.contains("1 of 1 refund decided"), "{decided:?}");
    let by = "select node from refundd.attempts where kind = 'manual'";
    assert_eq!(scratch.text(by).await, "desk", "the caller decided, whatever the user name is");
    node.stop().await;
}

#[tokio::test]
async fn a_foreign_page_loads_nothing_from_a_node_and_a_link_from_elsewhere_opens_the_page() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    let get = async |path: &str, [site, mode, kind]: [&str; 3]| {
        let headers = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", kind)];
        node.request_with(Method::GET, path, &headers, "").await
    };
    for path in ["/", "/refunds/1", "/proof?channel=acme&from=1h", "/v1/refunds/1", "/metrics", "/page.js"] {
        for foreign in [
            ["cross-site", "no-cors", "image"],
            ["same-site", "no-cors", "script"],
            ["cross-site", "navigate", "iframe"],
        ] {
            let refused = get(path, foreign).await;
            assert_eq!(refused.status, 403, "{path}, {foreign:?}: {refused:?}");
            assert!(refused.text.contains("foreign-origin"), "{path}: {refused:?}");
        }
        let own = get(path, ["same-origin", "no-cors", "script"]).await;
        // What a program sends.
        let of_program = node.request_with(Method::GET, path, &[], "").await;
        for answer in [own, of_program] {
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin", "{path}");
        }
    }
    for path in ["/", "/refunds/1"] {
        assert_eq!(get(path, ["cross-site", "navigate", "document"]).await.status, 200, "{path}");
    }
    node.stop().await;
}

//! The requirements of `on_unknown`, of the inquiry and of the answer rules.

use super::{channel, channel_complaints};
use crate::channel::RuleOutcome;
use crate::config::tests::{SECOND, with};
use crate::refund::OnUnknown;

#[test]
fn each_policy_for_unknown_refunds_has_the_keys_it_needs() {
    insta::assert_snapshot!(channel_complaints("on_unknown = \"inquire\""), @r#"r.toml:8:14: field `channel.acme.on_unknown` = "inquire": needs `inquiry`, which says how refundd asks this bank what became of a refund"#);
    insta::assert_snapshot!(channel_complaints("on_unknown = \"resend\""), @r#"r.toml:8:14: field `channel.acme.on_unknown` = "resend": needs `key_retention`, how long this bank recognises an `Idempotency-Key`: after that a repeat is a second refund"#);
    insta::assert_snapshot!(channel_complaints("on_unknown = \"reviw\"\nkey_retention = \"25s\""), @r#"
    r.toml:8:14: field `channel.acme.on_unknown` = "reviw": no such policy; did you mean `review`?
    r.toml:9:17: field `channel.acme.key_retention` = "25s": must be longer than one lease (25s), or no refund could ever be sent again in time
    "#);
    let ways = |lines: &str| {
        let config =
            with(&format!("[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n{lines}\n"));
        channel(&config).clone()
    };
    assert_eq!(ways("").on_unknown, OnUnknown::Review);
    let resends = ways("on_unknown = \"resend\"\nkey_retention = \"24h\"");
    assert_eq!(resends.on_unknown, OnUnknown::Resend { key_retention: 24 * 3600 * SECOND });
    assert_eq!(resends.resend_within(), Some((24 * 3600 - 25) * SECOND), "less one lease");
    let inquires = ways("on_unknown = \"inquire\"\ninquiry = { url = \"http://localhost/{request_id}\" }");
    assert_eq!(inquires.on_unknown, OnUnknown::Inquire);
    let inquiry = inquires.inquiry.unwrap();
    assert_eq!((inquiry.trust.not_found_is_final, inquiry.trust.grace), (false, 30 * SECOND));
    assert_eq!((inquiry.status.as_str(), inquiry.limits.as_ref()), ("/status", None));
    assert_eq!(inquiry.status_texts.pending, ["pending"]);
    assert_eq!(inquiry.url_of("k").unwrap(), "http://localhost/k");
}

#[test]
fn an_inquiry_is_an_address_with_a_key_and_status_texts_that_mean_one_thing() {
    let inquiry = |inner: &str| channel_complaints(&format!("inquiry = {{ {inner} }}"));
    insta::assert_snapshot!(inquiry(
        "url = \"https://b/refunds\", grace = \"0s\", status = \"status\", limits = [\"none\"], pending = [\"rejected\"], final = true"
    ), @r#"
    r.toml:8:1: field `channel.acme.inquiry.rejected` (default ["rejected"]): and the other lists name `rejected` twice: a word means one thing
    r.toml:8:19: field `channel.acme.inquiry.url` = "https://b/refunds": must hold `{request_id}` where the refund's key belongs, such as "https://gateway.example/acme/refunds/{request_id}"
    r.toml:8:48: field `channel.acme.inquiry.grace` = "0s": must lie between "1s" and "1d"
    r.toml:8:63: field `channel.acme.inquiry.status` = "status": must be a JSON pointer (RFC 6901): empty, or each name after a `/`, such as "/result/code"
    r.toml:8:82: field `channel.acme.inquiry.limits` = ["none"]: there is no `[limit.none]`, nor any other; add it
    r.toml:8:116: field `channel.acme.inquiry.final`: unknown key; known here: `url`, `authorization_file`, `authorization_credential`, `not_found_is_final`, `grace`, `limits`, `status`, `succeeded`, `pending`, `rejected`, `not_found`
    "#);
    for (url, requirement) in [
        ("http://localhost/{request_id}", "must start with `https://` like the `endpoint`"),
        ("https://{request_id}/", "not in the host"),
        ("https://u:hunter2@b/{request_id}", "must not hold a user"),
        ("{request_id}", "must start with `https://`"),
    ] {
        let shown = inquiry(&format!("url = \"{url}\""));
        assert!(shown.contains(requirement) && !shown.contains("hunter2"), "{shown}");
    }
    assert!(inquiry("").contains("missing; it is the address"), "{}", inquiry(""));
    let one_number =
        inquiry("url = \"https://b/{request_id}\", succeeded = [\"1.0\"], rejected = [\"1.00\"]");
    assert!(one_number.contains("name `1.0` twice"), "{one_number}");
    for (not_found, requirement) in [
        ("pointer = \"/error\"", "it is the bank's \"not found\""),
        ("equals = \"x\"", "it says where"),
        ("pointer = \"error\", equals = \"x\"", "must be a JSON pointer"),
        ("pointer = \"/error\", equals = \"\"", "must not be empty"),
        ("pointer = \"/status\", equals = \"pending\"", "a word means one thing"),
        ("pointer = \"/error\", word = \"x\"", "unknown key"),
    ] {
        let shown = inquiry(&format!("url = \"https://b/{{request_id}}\", not_found = {{ {not_found} }}"));
        assert!(shown.contains(requirement), "{shown}");
    }
    let own = with(
        "[limit.asks]\npermits = 1\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n\
         inquiry = { url = \"http://localhost/?key={request_id}\", limits = [\"asks\"] }\nbank_ref = \"/data/id\"\n",
    );
    insta::assert_snapshot!(channel_complaints("bank_ref = \"\""), @r#"r.toml:8:12: field `channel.acme.bank_ref` = "": must name a place inside the answer, such as "/id""#);
    let channel = channel(&own);
    let limits = channel.inquiry.as_ref().unwrap().limits.as_ref().unwrap();
    assert_eq!(limits.iter().map(|limit| limit.name.as_str()).collect::<Vec<_>>(), ["asks"]);
    assert_eq!(channel.bank_ref.as_deref(), Some("/data/id"));
}

#[test]
fn a_final_not_found_is_not_believed_before_the_first_request_has_timed_out() {
    let keys = |timeout: &str, inner: &str| {
        format!("timeout = \"{timeout}\"\ninquiry = {{ url = \"https://b/{{request_id}}\"{inner} }}")
    };
    let refused = channel_complaints(&keys("40s", ", not_found_is_final = true, grace = \"39s\""));
    assert!(
        refused.contains(
            "field `channel.acme.inquiry.grace` = \"39s\": must be at least `timeout`, which is 40s"
        ),
        "{refused}"
    );
    assert!(refused.contains("set `grace` to at least \"40s\""), "{refused}");
    // The complaint about the time-out itself is enough.
    let beside = channel_complaints(&keys("1h", ", not_found_is_final = true, grace = \"1s\""));
    assert!(beside.contains("channel.acme.timeout") && !beside.contains("grace"), "{beside}");
    let grace = |keys: &str| {
        let config = with(&format!("[channel.acme]\nendpoint = \"https://b/\"\nlimits = []\n{keys}\n"));
        channel(&config).inquiry.as_ref().unwrap().trust.grace
    };
    assert_eq!(grace(&keys("40s", ", not_found_is_final = true, grace = \"40s\"")), 40 * SECOND);
    assert_eq!(grace(&keys("40s", ", grace = \"1s\"")), SECOND, "nothing depends on it");
    assert_eq!(grace(&keys("40s", "")), 30 * SECOND, "the default, and nothing depends on it");
    assert_eq!(grace(&keys("40s", ", not_found_is_final = true")), 40 * SECOND, "the default");
    assert_eq!(grace(&keys("10s", ", not_found_is_final = true")), 30 * SECOND, "the default");
}

#[test]
fn answer_rules_are_whole_known_and_reachable() {
    let rule = |lines: &str| format!("[[channel.acme.verdict]]\n{lines}\n");
    insta::assert_snapshot!(channel_complaints(&[
        rule("status = 99\noutcome = \"rejectd\""),
        rule("status = 200\npointer = \"/code\"\noutcome = \"rejected\""),
        rule("status = 200\npointer = \"code\"\nequals = \"51\"\noutcome = \"rejected\""),
        rule("status = 409\noutcome = \"review\""),
        rule("status = 409\npointer = \"/code\"\nequals = \"51\"\noutcome = \"rejected\""),
        rule("outcme = \"review\""),
    ].concat()), @r#"
    r.toml:9:10: field `channel.acme.verdict#1.status` = 99: must lie between 200 and 599
    r.toml:10:11: field `channel.acme.verdict#1.outcome` = "rejectd": no such outcome; did you mean `rejected`?
    r.toml:11:1: `[[channel.acme.verdict]]` number 2: `pointer` and `equals` go together: give both, or neither to match any body
    r.toml:17:11: field `channel.acme.verdict#3.pointer` = "code": must be a JSON pointer (RFC 6901): empty, or each name after a `/`, such as "/result/code"
    r.toml:23:1: `[[channel.acme.verdict]]` number 5: is never reached: an earlier rule for status 409 already matches the same answers; put this rule first, or remove it
    r.toml:28:1: field `channel.acme.verdict#6.status`: missing; it is the HTTP status that the rule matches
    r.toml:28:1: field `channel.acme.verdict#6.outcome`: missing; use one of `succeeded`, `accepted`, `rejected`, `not_executed`, `asked_to_wait`, `unknown`, `review`
    r.toml:29:1: field `channel.acme.verdict#6.outcme`: unknown key; did you mean `outcome`?
    "#);
    let config = with(&format!(
        "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n{}{}",
        rule("status = 200\npointer = \"/code\"\nequals = \"51\"\noutcome = \"rejected\""),
        rule("status = 200\noutcome = \"not_executed\""),
    ));
    let rules = &channel(&config).answer_rules;
    assert_eq!(rules[0].body, Some(("/code".to_owned(), "51".to_owned())));
    assert_eq!(rules[1].outcome, RuleOutcome::NotExecuted);
}

#[test]
fn a_rule_with_a_faulty_condition_is_complained_about_once_and_hides_no_other_rule() {
    let rules = |first: &str, second: &str| {
        let rule =
            |lines: &str| format!("[[channel.acme.verdict]]\nstatus = 200\n{lines}\noutcome = \"review\"\n");
        channel_complaints(&[rule(first), rule(second)].concat())
    };
    let (any_body, one_text) = ("", "pointer = \"/code\"\nequals = \"51\"");
    insta::assert_snapshot!(rules("pointer = 7\nequals = \"51\"", one_text), @"r.toml:10:11: field `channel.acme.verdict#1.pointer` = 7: must be text in quotes, not a whole number");
    insta::assert_snapshot!(rules(any_body, "pointer = \"/code\"\nequals = 51"), @"r.toml:15:10: field `channel.acme.verdict#2.equals` = 51: must be text in quotes, not a whole number");
    insta::assert_snapshot!(rules("points = \"/code\"", one_text), @"r.toml:10:1: field `channel.acme.verdict#1.points`: unknown key; did you mean `pointer`?");
    insta::assert_snapshot!(rules(one_text, one_text), @"r.toml:13:1: `[[channel.acme.verdict]]` number 2: is never reached: an earlier rule for status 200 already matches the same answers; put this rule first, or remove it");
}

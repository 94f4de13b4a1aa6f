//! A channel's own rules, which come before the table.

use super::*;

#[test]
fn a_channels_rules_come_before_the_table_and_in_order() {
    let rule = |body: Option<(&str, &str)>, outcome| AnswerRule {
        status: 200,
        body: body.map(|(p, v)| (p.to_owned(), v.to_owned())),
        outcome,
    };
    let rules = [rule(Some(("/result/code", "51")), RuleOutcome::Rejected), rule(None, RuleOutcome::Review)];
    let channel = channel(rules.into());
    let read =
        |body: &str| read_answer(&channel, &expected(), 200, &HeaderMap::new(), body.as_bytes()).outcome;
    assert_eq!(read(r#"{"result":{"code":51}}"#), Outcome::Rejected);
    assert_eq!(read(r#"{"result":{"code":"51"}}"#), Outcome::Rejected);
    assert_eq!(read(r#"{"result":{"code":"00"}}"#), Outcome::Review);
}

#[test]
fn an_answer_that_no_rule_about_the_body_lists_is_unmapped_unless_it_has_a_status() {
    let rule = |status, code: &str, outcome| AnswerRule {
        status,
        body: Some(("/code".to_owned(), code.to_owned())),
        outcome,
    };
    let declined = rule(200, "51", RuleOutcome::Rejected);
    let rules = vec![declined.clone(), rule(202, "07", RuleOutcome::SlowDown)];
    let listed = Channel { bank_ref: None, ..channel(rules.clone()) };
    let framed = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("0"))]);
    let read = |channel: &Channel, status, body: &str| {
        let answer = read_answer(channel, &expected(), status, &framed, body.as_bytes());
        (answer.outcome, answer.code)
    };
    let unmapped = (Outcome::Unknown, Code::Unmapped);
    for (status, body, wanted) in [
        (200, r#"{"code":"51"}"#, (Outcome::Rejected, Code::ChannelRule)),
        (200, r#"{"code":"05"}"#, unmapped.clone()),
        (200, r#"{"code":"00","result":{"status":"succeeded"}}"#, unmapped.clone()),
        (200, "{}", unmapped.clone()),
        (200, "", unmapped.clone()),
        (202, r#"{"code":"05"}"#, unmapped.clone()),
        (200, r#"{"code":"05","status":"succeeded"}"#, (Outcome::Succeeded, Code::Succeeded)),
        (200, r#"{"code":"05","status":"rejected"}"#, (Outcome::Rejected, Code::Rejected)),
        (202, r#"{"code":"05","status":"pending"}"#, (Outcome::Accepted, Code::Accepted)),
        (200, r#"{"code":"05","status":null}"#, unmapped.clone()),
        (200, "<html>05</html>", (Outcome::Unknown, Code::Unreadable)),
        // No rule is about these statuses, but a bank that writes its verdict into one 2xx does so into others, too.
        (201, r#"{"code":"51"}"#, unmapped.clone()),
        (206, r#"{"code":"05"}"#, unmapped.clone()),
        (204, "", unmapped.clone()),
        (201, r#"{"code":"05","status":"succeeded"}"#, (Outcome::Succeeded, Code::Succeeded)),
        (422, r#"{"code":"05"}"#, (Outcome::Rejected, Code::Rejected)),
    ] {
        assert_eq!(read(&listed, status, body), wanted, "{status} {body}");
    }
    // A last rule without `pointer` says what the rest means.
    let rest = AnswerRule { status: 200, body: None, outcome: RuleOutcome::Succeeded };
    let closed = channel(vec![declined, rest.clone()]);
    assert_eq!(read(&closed, 200, r#"{"code":"05"}"#), (Outcome::Succeeded, Code::ChannelRule));
    assert_eq!(read(&closed, 202, r#"{"code":"51"}"#), unmapped, "it is a rule for 200 alone");
    let refusals = Channel { bank_ref: None, ..channel(vec![rule(422, "05", RuleOutcome::Review)]) };
    assert_eq!(read(&refusals, 200, r#"{"code":"05"}"#), (Outcome::Succeeded, Code::Succeeded));
    let open = |rules: &[AnswerRule]| AnswerRule::open_statuses(rules).into_iter().collect::<Vec<_>>();
    assert_eq!(open(&rules), [200, 202]);
    assert_eq!(open(&[rules, vec![rest.clone()]].concat()), [202]);
    assert!(
        open(&[rule(422, "05", RuleOutcome::Review), rest]).is_empty(),
        "a 422 without a rule is a refusal"
    );
}

#[test]
fn a_2xx_that_names_an_error_is_unmapped_until_a_rule_gives_it_a_meaning() {
    let body = br#"{"id":"B-1","error":{"code":"51"}}"#;
    let read = |rules: Vec<AnswerRule>| {
        let answer = read_answer(&channel(rules), &expected(), 200, &HeaderMap::new(), body);
        (answer.outcome, answer.code, answer.bank_ref)
    };
    assert_eq!(read(Vec::new()), (Outcome::Unknown, Code::Unmapped, None));
    let declined = Some(("/error/code".to_owned(), "51".to_owned()));
    let declined = AnswerRule { status: 200, body: declined, outcome: RuleOutcome::Rejected };
    assert_eq!(read(vec![declined]), (Outcome::Rejected, Code::ChannelRule, None));
    // A last rule for all other bodies does not take an error for paid, with and without rules before it.
    let of_any_body = |outcome| AnswerRule { status: 200, body: None, outcome };
    let other = Some(("/error/code".to_owned(), "05".to_owned()));
    let other = AnswerRule { status: 200, body: other, outcome: RuleOutcome::Rejected };
    for paid in [RuleOutcome::Succeeded, RuleOutcome::Accepted] {
        let wanted = (Outcome::Unknown, Code::Unmapped, None);
        assert_eq!(read(vec![of_any_body(paid)]), wanted);
        assert_eq!(read(vec![other.clone(), of_any_body(paid)]), wanted);
    }
    // Nor is it sent again where another rule may find that the bank paid.
    let executed = Some(("/error/code".to_owned(), "00".to_owned()));
    for again in [RuleOutcome::NotExecuted, RuleOutcome::SlowDown] {
        for outcome in [RuleOutcome::Succeeded, RuleOutcome::Accepted, RuleOutcome::Review] {
            let executed = AnswerRule { status: 200, body: executed.clone(), outcome };
            let wanted = (Outcome::Unknown, Code::Unmapped, None);
            assert_eq!(read(vec![executed, of_any_body(again)]), wanted, "{outcome:?}, {again:?}");
        }
        for rules in [vec![of_any_body(again)], vec![other.clone(), of_any_body(again)]] {
            let (outcome, code, _) = read(rules);
            assert!(outcome.executed_nothing() && code == Code::ChannelRule, "{outcome:?}, {again:?}");
        }
    }
    for (rest, wanted) in [(RuleOutcome::Review, Outcome::Review), (RuleOutcome::Rejected, Outcome::Rejected)]
    {
        let (outcome, code, _) = read(vec![of_any_body(rest)]);
        assert_eq!((outcome, code), (wanted, Code::ChannelRule));
    }
    let paid = Some(("/error/code".to_owned(), "51".to_owned()));
    let paid = AnswerRule { status: 200, body: paid, outcome: RuleOutcome::Succeeded };
    assert_eq!(read(vec![paid]), (Outcome::Succeeded, Code::ChannelRule, Some("B-1".to_owned())));
}

#[test]
fn a_rule_for_an_error_of_http_may_call_it_paid_whatever_its_body_says() {
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
    let body = br#"{"error":"already_refunded","errorCode":"R-51"}"#;
    for status in [400, 404, 409, 410, 422, 429, 500, 503] {
        for (given, wanted) in
            [(RuleOutcome::Succeeded, Outcome::Succeeded), (RuleOutcome::Accepted, Outcome::Accepted)]
        {
            let channel = channel(vec![AnswerRule { status, body: None, outcome: given }]);
            let answer = read_answer(&channel, &expected(), status, &headers, body);
            assert_eq!((answer.outcome, answer.code), (wanted, Code::ChannelRule), "{status}");
        }
    }
}

#[test]
fn what_was_sent_is_compared_beside_the_verdict_too_but_not_the_banks_own_reference() {
    let rule = |status| AnswerRule {
        status,
        body: Some(("/data/code".to_owned(), "00".to_owned())),
        outcome: RuleOutcome::Succeeded,
    };
    let channel = Channel { bank_ref: Some("/data/refund_id".to_owned()), ..channel(vec![rule(200)]) };
    let read = |status, body: &str| {
        let answer = read_answer(&channel, &expected(), status, &HeaderMap::new(), body.as_bytes());
        (answer.code, answer.bank_ref)
    };
    let own = r#"{"data":{"code":"00","refund_id":"B-1"}}"#;
    assert_eq!(read(200, own), (Code::ChannelRule, Some("B-1".to_owned())));
    let other = r#"{"data":{"code":"00","refund_id":"B-1","refund_ref":"R-8"}}"#;
    assert_eq!(read(200, other), (Code::EchoDiffers, None));
    assert_eq!(read(200, r#"{"refund_id":"B-1"}"#), (Code::Unmapped, None));
    let stated = r#"{"status":"succeeded","data":{"refund_id":"B-1","refund_ref":"R-8"}}"#;
    assert_eq!(read(201, stated).0, Code::Succeeded, "no rule for this status looks there");
}

#[test]
fn what_a_rule_calls_not_executed_counts_unless_it_names_another_refund() {
    for outcome in [RuleOutcome::NotExecuted, RuleOutcome::SlowDown] {
        let channel = channel(vec![AnswerRule { status: 422, body: None, outcome }]);
        let read = |body: &str| read_answer(&channel, &expected(), 422, &HeaderMap::new(), body.as_bytes());
        assert!(read(r#"{"amount_minor":9}"#).outcome.executed_nothing(), "{outcome:?}");
        let of_another = read(r#"{"amount_minor":9,"refund_id":8}"#);
        assert_eq!((of_another.outcome, of_another.names_another), (Outcome::Review, true), "{outcome:?}");
    }
}

#[test]
fn a_rule_settles_no_answer_that_says_two_things() {
    let body = r#"{"amount_minor":1250,"amount_minor":1}"#.as_bytes();
    for (gives, wanted) in [
        (RuleOutcome::Succeeded, Outcome::Unknown),
        (RuleOutcome::Rejected, Outcome::Unknown),
        (RuleOutcome::NotExecuted, Outcome::NotExecuted),
    ] {
        let channel = channel(vec![AnswerRule { status: 200, body: None, outcome: gives }]);
        let answer = read_answer(&channel, &expected(), 200, &HeaderMap::new(), body);
        assert_eq!(answer.outcome, wanted);
        // The rule before it may have found that it was executed.
        let executed = Some(("/executed".to_owned(), "true".to_owned()));
        let executed = AnswerRule { status: 409, body: executed, outcome: RuleOutcome::Succeeded };
        let channel = self::channel(vec![executed, AnswerRule { status: 409, body: None, outcome: gives }]);
        let answer = read_answer(&channel, &expected(), 409, &HeaderMap::new(), body);
        assert_eq!((answer.outcome, answer.code), (Outcome::Unknown, Code::Unreadable));
    }
}

#[test]
fn a_rule_for_the_rest_takes_no_body_in_which_the_rules_before_it_could_not_look() {
    const DECLINED: &str = r#"{"code":"51"}"#;
    let rule = |status, code: Option<&str>, outcome| AnswerRule {
        status,
        body: code.map(|code| ("/code".to_owned(), code.to_owned())),
        outcome,
    };
    let unframed = HeaderMap::new();
    let framed = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("0"))]);
    let read = |channel: &Channel, status, headers: &HeaderMap, body: &[u8]| {
        let answer = read_answer(channel, &expected(), status, headers, body);
        (answer.outcome, answer.code)
    };
    let cut = (0..DECLINED.len()).map(|length| &DECLINED.as_bytes()[..length]);
    let others = ["<html>".as_bytes(), "51".as_bytes(), b"\x1f\x8b\x08\0".as_slice()];
    // Whole, but no object: no `/code` can stand in it.
    let no_objects = ["null", "false", "51", r#""ERROR""#, "[]", r#"[{"error":"x"}]"#].map(str::as_bytes);
    let unread = cut.chain(others).map(|body| (&unframed, body));
    let unread: Vec<_> = unread.chain(no_objects.map(|body| (&framed, body))).collect();
    for (status, listed, rest) in [
        (200, RuleOutcome::Rejected, RuleOutcome::Succeeded),
        (200, RuleOutcome::Rejected, RuleOutcome::Accepted),
        (200, RuleOutcome::Succeeded, RuleOutcome::Rejected),
        (422, RuleOutcome::Review, RuleOutcome::Rejected),
        (200, RuleOutcome::Succeeded, RuleOutcome::NotExecuted),
        (409, RuleOutcome::Succeeded, RuleOutcome::NotExecuted),
        (503, RuleOutcome::Accepted, RuleOutcome::SlowDown),
    ] {
        let channel = channel(vec![rule(status, Some("51"), listed), rule(status, None, rest)]);
        for (headers, body) in &unread {
            let wanted = (Outcome::Unknown, Code::Unreadable);
            assert_eq!(read(&channel, status, headers, body), wanted, "{status} {rest:?} {body:?}");
        }
        let whole = read(&channel, status, &unframed, br#"{"code":"05"}"#);
        assert_eq!(whole.1, Code::ChannelRule, "{status} {rest:?}");
    }
    let by_rule = |outcome| (outcome, Code::ChannelRule);
    let declined = rule(200, Some("51"), RuleOutcome::Rejected);
    // An answer without a body hides nothing where its headers say that it has none.
    let paid = channel(vec![declined.clone(), rule(200, None, RuleOutcome::Succeeded)]);
    assert_eq!(read(&paid, 200, &framed, b""), by_rule(Outcome::Succeeded));
    // An object only lacks the field, and these pointers lead to a text and into lists.
    for (pointer, body) in [
        ("/code", "{}"),
        ("", r#""05""#),
        ("/0", r#"["05"]"#),
        ("/0/code", "[{}]"),
        ("/0/code", "[]"),
        ("/0/error/code", r#"[{"id":"B-1"}]"#),
    ] {
        let looks = Some((pointer.to_owned(), "51".to_owned()));
        let looks = AnswerRule { body: looks, ..declined.clone() };
        let paid = channel(vec![looks, rule(200, None, RuleOutcome::Succeeded)]);
        assert_eq!(read(&paid, 200, &framed, body.as_bytes()), by_rule(Outcome::Succeeded), "{pointer}");
    }
    for (rest, wanted) in [(RuleOutcome::Unknown, Outcome::Unknown), (RuleOutcome::Review, Outcome::Review)] {
        let open = channel(vec![declined.clone(), rule(200, None, rest)]);
        assert_eq!(read(&open, 200, &unframed, b"<html>"), by_rule(wanted));
    }
    // No rule looks into a body of this status.
    let of_another = rule(201, Some("51"), RuleOutcome::Rejected);
    for rules in [vec![], vec![of_another]] {
        let any = channel([rules, vec![rule(200, None, RuleOutcome::Succeeded)]].concat());
        assert_eq!(read(&any, 200, &unframed, b"<html>"), by_rule(Outcome::Succeeded));
    }
}

#[test]
fn the_message_names_the_rule_that_decided_and_keeps_the_banks_own_words() {
    let rule = |code: &str| AnswerRule {
        status: 200,
        body: Some(("/code".to_owned(), code.to_owned())),
        outcome: RuleOutcome::Rejected,
    };
    let channel = channel(vec![rule("51"), rule("52")]);
    let read = |body: &str| read_answer(&channel, &expected(), 200, &HeaderMap::new(), body.as_bytes());
    let by_rule = read(r#"{"code":"52","error":"card closed"}"#);
    assert_eq!(by_rule.message, r#"HTTP 200 (rule 2 of `verdict`), code "52", error "card closed""#);
    let by_table = read(r#"{"code":"53","status":"rejected"}"#);
    assert_eq!(by_table.message, r#"HTTP 200, status "rejected", code "53""#);
    let nested = read(r#"{"status":"rejected","error":{"code":"51","message":"to 4111 1111 1111 1111"}}"#);
    let shown = r#"HTTP 200, status "rejected", error.code "51", error.message "to [digits]""#;
    assert_eq!(nested.message, shown);
    let listed = read(r#"{"errorCode":7,"errors":[{"detail":"card closed","at":"/id"},{"detail":"late"}]}"#);
    assert_eq!(listed.message, r#"HTTP 200, errorCode "7", errors[0].detail "card closed""#);
    let described = read(r#"{"errorMessage":"no","error":"denied","error_description":"not yours"}"#);
    let shown = r#", error "denied", errorMessage "no", error_description "not yours""#;
    assert_eq!(described.message, format!("HTTP 200{shown}"));
    let another_refund = read(r#"{"code":"52","refund_id":8}"#);
    assert!(!another_refund.message.contains("rule"), "no rule decided: {}", another_refund.message);
    let long = format!(
        r#"{{"code":"52","error":"{0}","detail":"{0}","title":"{0}","reason":"{0}"}}"#,
        "x".repeat(200)
    );
    let long = read(&long).message;
    assert!(long.starts_with("HTTP 200 (rule 2 of `verdict`), ") && long.chars().count() <= 500, "{long}");
}

#[test]
fn a_rule_makes_a_refusal_without_retry_after_a_wait_and_obeys_the_header_where_there_is_one() {
    let rule = AnswerRule { status: 503, body: None, outcome: RuleOutcome::SlowDown };
    let channel = channel(vec![rule]);
    let read = |headers: &HeaderMap| read_answer(&channel, &expected(), 503, headers, b"<html>").outcome;
    let mut headers = HeaderMap::new();
    assert_eq!(read(&headers), Outcome::SlowDown { retry_after: None });
    headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
    assert_eq!(read(&headers), Outcome::SlowDown { retry_after: Some(Duration::from_secs(7)) });
}

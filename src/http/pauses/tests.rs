//! What the bodies of pauses and resumes mean, and which fields a refusal names.

use serde_json::json;

use super::*;

fn object(json: &Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

fn fields(errors: &[FieldError]) -> Vec<&str> {
    errors.iter().map(|error| error.field.as_str()).collect()
}

#[test]
fn a_pause_says_why_and_who_and_how_long_if_it_ends_by_itself() {
    let read = |json| read_pause(&object(&json), &Who::Anyone);
    let (reason, by) = ("the bank is down".to_owned(), "ann".to_owned());
    let wanted = read(json!({ "reason": " the bank is down ", "by": "ann", "for_seconds": 7200 }));
    let lasts = Some(Duration::from_hours(2));
    assert_eq!(wanted, Ok(Wanted { reason: reason.clone(), by: by.clone(), verb: Verb::Pause { lasts } }));
    let wanted = read(json!({ "reason": "the bank is down", "by": "ann", "for_seconds": null }));
    assert_eq!(wanted, Ok(Wanted { reason, by, verb: Verb::Pause { lasts: None } }));
    for (bad, named) in [
        (json!({ "by": "ann" }), vec!["reason"]),
        (json!({ "reason": " ", "by": "ann" }), vec!["reason"]),
        (json!({ "reason": "r" }), vec!["by"]),
        (json!({ "reason": "r", "by": "a\u{1b}b" }), vec!["by"]),
        (json!({ "reason": "4111 1111 1111 1111", "by": "ann" }), vec!["reason"]),
        (json!({ "reason": "r", "by": "ann", "for_seconds": "2h" }), vec!["for_seconds"]),
        (json!({ "reason": "r", "by": "ann", "for_seconds": 0 }), vec!["for_seconds"]),
        (json!({ "reason": "r", "by": "ann", "for": "2h" }), vec!["for"]),
    ] {
        assert_eq!(fields(&read(bad.clone()).unwrap_err()), named, "{bad}");
    }
}

#[test]
fn a_resume_ends_a_pause_unless_it_names_another_suspension() {
    let read = |json| read_resume(&object(&json), &Who::Anyone, true);
    for (lift, verb) in [
        (json!(null), None),
        (json!("pause"), Some(Verb::Resume)),
        (json!("breaker"), Some(Verb::Release(SuspendedBy::Breaker))),
        (json!("credentials"), Some(Verb::Release(SuspendedBy::Credentials))),
        (json!("all"), None),
    ] {
        let wanted = read(json!({ "by": "ann", "lift": lift }));
        assert_eq!(wanted.ok().map(|wanted| wanted.verb), verb, "{lift}");
    }
    assert_eq!(read(json!({ "by": "ann" })).unwrap().verb, Verb::Resume);
    let all = read_resume(&object(&json!({ "by": "ann", "lift": "breaker" })), &Who::Anyone, false);
    assert_eq!(fields(&all.unwrap_err()), ["lift"], "everything is paused by people alone");
}

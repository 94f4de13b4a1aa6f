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
    let verb = PauseVerb::Pause { lasts: Some(Duration::from_hours(2)), seen: Seen::Unsaid };
    assert_eq!(wanted, Ok(PauseRequest { reason: reason.clone(), by: by.clone(), verb }));
    let wanted = read(json!({ "reason": "the bank is down", "by": "ann", "for_seconds": null }));
    assert_eq!(
        wanted,
        Ok(PauseRequest { reason, by, verb: PauseVerb::Pause { lasts: None, seen: Seen::Unsaid } })
    );
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
    let end = |by| PauseVerb::End { by, seen: None };
    for (lift, verb) in [
        (json!(null), None),
        (json!("pause"), Some(end(SuspendedBy::Person))),
        (json!("breaker"), Some(end(SuspendedBy::Breaker))),
        (json!("credentials"), Some(end(SuspendedBy::Credentials))),
        (json!("cooling"), Some(end(SuspendedBy::Cooling))),
        (json!("all"), None),
    ] {
        let wanted = read(json!({ "by": "ann", "lift": lift }));
        assert_eq!(wanted.ok().map(|wanted| wanted.verb), verb, "{lift}");
    }
    assert_eq!(read(json!({ "by": "ann" })).unwrap().verb, end(SuspendedBy::Person));
    let all = |json| read_resume(&object(&json), &Who::Anyone, false);
    assert_eq!(all(json!({ "by": "ann" })).unwrap().verb, end(SuspendedBy::All));
    let lifts = all(json!({ "by": "ann", "lift": "breaker" }));
    assert_eq!(fields(&lifts.unwrap_err()), ["lift"], "everything is paused by people alone");
}

#[test]
fn what_a_request_saw_is_a_moment_and_of_a_pause_also_none() {
    let since: Timestamp = "2026-03-29T14:00:00.123456Z".parse().unwrap();
    let asked = |seen: Value| object(&json!({ "reason": "r", "by": "ann", "seen": seen }));
    let pause = |seen: Value| read_pause(&asked(seen), &Who::Anyone).map(|wanted| wanted.verb);
    let resume = |seen: Value| read_resume(&asked(seen), &Who::Anyone, true).map(|wanted| wanted.verb);
    for (said, seen) in [
        (json!(null), Seen::Unsaid),
        (json!("none"), Seen::Nothing),
        (json!(since.to_string()), Seen::Since(since)),
    ] {
        assert_eq!(pause(said.clone()), Ok(PauseVerb::Pause { lasts: None, seen }), "{said}");
    }
    for (said, seen) in [(json!(null), None), (json!(since.to_string()), Some(since))] {
        assert_eq!(resume(said.clone()), Ok(PauseVerb::End { by: SuspendedBy::Person, seen }), "{said}");
    }
    assert_eq!(fields(&resume(json!("none")).unwrap_err()), ["seen"]);
    for wrong in [json!("yesterday"), json!(""), json!(7)] {
        assert_eq!(fields(&pause(wrong.clone()).unwrap_err()), ["seen"], "{wrong}");
        assert_eq!(fields(&resume(wrong.clone()).unwrap_err()), ["seen"], "{wrong}");
    }
}

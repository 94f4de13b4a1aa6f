use serde_json::json;

use super::*;

fn decision(state: &str) -> Value {
    json!({ "refunds": [{ "id": "7", "version": 3 }], "state": state, "reason": "on the statement", "by": "ann" })
}

fn read(json: &Value) -> Result<Decisions, Vec<FieldError>> {
    super::read(json.as_object().unwrap(), &Who::Anyone)
}

fn wrong(json: &Value) -> Vec<String> {
    read(json).unwrap_err().into_iter().map(|error| error.field).collect()
}

#[test]
fn a_decision_names_refunds_their_versions_a_state_a_reason_and_a_person() {
    let mut json = decision("ready");
    json["confirm"] = json!("not_executed");
    let decisions = Decisions {
        refunds: vec![Named { id: RefundId(7), seen: 3 }],
        state: RefundState::Ready,
        not_executed: true,
        person: Person { reason: "on the statement".to_owned(), by: "ann".to_owned() },
    };
    assert_eq!(read(&json), Ok(decisions));
}

#[test]
fn a_decision_without_versions_is_refused_with_the_way_out() {
    for state in ["ready", "failed", "cancelled", "review", "succeeded"] {
        let mut json = decision(state);
        json.as_object_mut().unwrap().remove("refunds");
        json["ids"] = json!([7, "8"]);
        assert_eq!(wrong(&json), ["refunds", "ids"], "{state}");
        let errors = read(&json).unwrap_err();
        assert!(errors[0].message.contains("\"refunds\": [{\"id\": 4711, \"version\": 7}]"), "{errors:?}");
    }
}

#[test]
fn everything_that_is_wrong_with_a_decision_is_named() {
    let all = json!({ "refunds": [], "state": "sending", "reason": " ", "confirm": "yes", "why": "x" });
    assert_eq!(wrong(&all), ["reason", "by", "state", "confirm", "refunds", "why"]);
    for refund in [
        json!(7),
        json!({ "id": 7 }),
        json!({ "id": 7, "version": "3" }),
        json!({ "id": 7, "version": -1 }),
        json!({ "id": 0, "version": 3 }),
    ] {
        let mut json = decision("failed");
        json["refunds"] = json!([refund]);
        assert_eq!(wrong(&json), ["refunds[0]"], "{refund}");
    }
    let mut both = decision("succeeded");
    both["ids"] = json!([7]);
    assert_eq!(wrong(&both), ["ids"]);
    let mut confirmed = decision("failed");
    confirmed["confirm"] = json!("not_executed");
    assert_eq!(wrong(&confirmed), ["confirm"]);
}

//! Whether a 2xx names an error in place of a verdict.
//!
//! Gateways and adapters answer so. A Lambda behind a gateway answers 200 with `errorMessage` when its time is over. What
//! the bank did by then is not known.

use serde_json::Value;

use crate::channel::{AnswerRule, RuleOutcome};

/// What the fields at the top of a body that name an error are called, without case, `_` and `-`.
const FIELDS: [&str; 9] =
    ["error", "errors", CODE, "errormessage", "errortype", "fault", "haserror", "haserrors", "iserror"];
const CODE: &str = "errorcode";

/// What the fields at the top that deny a success are called.
const SUCCESS_FIELDS: [&str; 7] =
    ["success", "ok", "issuccess", "successful", "issuccessful", "succeeded", "approved"];

/// Texts in these fields that say that there is no error, in any case.
const NO_ERROR: [&str; 8] = ["ok", "success", "none", "no error", "null", "false", "no", "n"];

/// Whether a 2xx without `status` has a field that names an error. Banks write `"errorCode":"00"` into a success, often
/// with a text for people, so such a code outweighs that text.
pub(super) fn names_an_error(json: &Value) -> bool {
    let Some(fields) = json.as_object().filter(|fields| !fields.contains_key("status")) else { return false };
    let named = || fields.iter().map(|(name, value)| (plain(name), value));
    let has_good_code = named().any(|(name, value)| name == CODE && says_no_error(value));
    named().any(|(name, value)| {
        let is_outweighed = has_good_code && matches!(&*name, CODE | "errormessage" | "errortype");
        let denies_success = SUCCESS_FIELDS.contains(&&*name) && says_false(value);
        denies_success || !is_outweighed && FIELDS.contains(&&*name) && is_error(value)
    })
}

/// Whether a field at the top is called `status` but for case, `_` and `-`. The bank's verdict may stand there, and the
/// table does not read it.
pub(super) fn spells_status_otherwise(json: &Value) -> bool {
    let is_other = |name: &String| name != "status" && plain(name) == "status";
    json.as_object().is_some_and(|fields| fields.keys().any(is_other))
}

/// Whether a rule for any body of a 2xx must not take this error: it would count as paid, or the refund would be sent again
/// although another rule of that status may find it executed. Such a rule often stands last, for all codes that the rules
/// before it do not list. One with `rejected` takes it: a bank that lists its successes declines by all other answers. A rule
/// for another status is for an error that means paid, such as a 409 for a key that was executed.
pub(super) fn must_not_take(rule: &AnswerRule, rules: &[AnswerRule], json: Option<&Value>) -> bool {
    let is_of_2xx = (200..300).contains(&rule.status);
    let is_risky = || match rule.outcome {
        RuleOutcome::Succeeded | RuleOutcome::Accepted => true,
        RuleOutcome::NotExecuted | RuleOutcome::SlowDown => {
            rules.iter().any(|other| other.may_find_executed(rule.status))
        }
        RuleOutcome::Rejected | RuleOutcome::Unknown | RuleOutcome::Review => false,
    };
    is_of_2xx && rule.body.is_none() && is_risky() && json.is_some_and(names_an_error)
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

fn is_error(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(_) => !says_no_error(value),
        Value::String(text) => !text.trim().is_empty() && !says_no_error(value),
        Value::Array(items) => items.iter().any(is_error),
        Value::Object(fields) => fields.values().any(is_error),
    }
}

fn says_false(value: &Value) -> bool {
    match value {
        Value::Bool(is_true) => !is_true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.trim() == "0" || text.trim().eq_ignore_ascii_case("false"),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether a number or a text says that there is no error: zeros, or one of the known texts. An empty text says nothing.
fn says_no_error(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            let text = text.trim();
            let is_zeros = !text.is_empty() && text.bytes().all(|byte| byte == b'0');
            is_zeros || NO_ERROR.iter().any(|known| text.eq_ignore_ascii_case(known))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_from_a_success_that_has_the_same_fields() {
        for (body, wanted) in [
            (r#"{"errorMessage":"Task timed out after 3.55 seconds","errorType":"Runtime.ExitError"}"#, true),
            (r#"{"error":{"code":"51","message":"no funds"}}"#, true),
            (r#"{"error":{"code":0,"message":"connection refused"}}"#, true),
            (r#"{"error":true}"#, true),
            (r#"{"errors":[{},"card closed"]}"#, true),
            (r#"{"fault":{"faultstring":"no target"}}"#, true),
            (r#"{"errorCode":51}"#, true),
            (r#"{"errorCode":"0051"}"#, true),
            (r#"{"errorCode":"","errorMessage":"time-out"}"#, true),
            (r#"{"errorCode":null,"errorMessage":"time-out"}"#, true),
            (r#"{"errorCode":"00","error":"time-out"}"#, true),
            (r#"{"errorCode":"00","errorMessage":"Transaction approved","errorType":"I"}"#, false),
            (r#"{"error_code":"51","error_message":"declined"}"#, true),
            (r#"{"ErrorCode":"51"}"#, true),
            (r#"{"Errors":[{"Code":"E7"}]}"#, true),
            (r#"{"error-message":"declined"}"#, true),
            (r#"{"status":"succeeded","error":"declined"}"#, false),
            (r#"{"ErrorCode":"00","ErrorMessage":"Approved"}"#, false),
            (r#"{"errorCode":0.0,"errorMessage":"Approved"}"#, false),
            (r#"{"errorMessage":"No Error","fault":"N"}"#, false),
            (r#"{"success":false,"message":"no funds"}"#, true),
            (r#"{"Success":"False"}"#, true),
            (r#"{"ok":0}"#, true),
            (r#"{"success":false,"errorCode":"00"}"#, true),
            (r#"{"status":"succeeded","success":false}"#, false),
            (r#"{"success":true,"ok":1}"#, false),
            (r#"{"success":null,"ok":"yes","successes":0}"#, false),
            (r#"{"result":{"success":false}}"#, false),
            (r#"{"isSuccess":false,"id":"B-1"}"#, true),
            (r#"{"successful":"false"}"#, true),
            (r#"{"IsSuccessful":false}"#, true),
            (r#"{"succeeded":0}"#, true),
            (r#"{"approved":false,"errorCode":"00"}"#, true),
            (r#"{"is_success":true,"approved":true,"succeeded":"7","successful":null}"#, false),
            (r#"{"hasError":true}"#, true),
            (r#"{"has_errors":1}"#, true),
            (r#"{"IsError":"True","errorCode":"00"}"#, true),
            (r#"{"hasError":false,"hasErrors":0,"isError":"N"}"#, false),
            (r#"{"status":"succeeded","hasError":true,"approved":false}"#, false),
            (r#"{"terrors":"x"}"#, false),
            (r#"{"errorCode":0}"#, false),
            (r#"{"errorCode":"0000","errorMessage":""}"#, false),
            (r#"{"errorCode":"SUCCESS","errorMessage":"Done"}"#, false),
            (r#"{"errorMessage":"Success"}"#, false),
            (r#"{"error":null,"errors":[],"fault":{},"errorMessage":" "}"#, false),
            (r#"{"error":false,"errors":[null,{}]}"#, false),
            (r#"{"error":{"code":"00","message":"OK"}}"#, false),
            (r#"{"id":"B-1","result":{"error":"deeper"}}"#, false),
            ("{}", false),
            (r#"["error"]"#, false),
        ] {
            let json = serde_json::from_str(body).unwrap();
            assert_eq!(names_an_error(&json), wanted, "{body}");
        }
    }

    #[test]
    fn a_status_in_another_spelling_is_noticed_at_the_top() {
        for (body, wanted) in [
            (r#"{"Status":"DECLINED"}"#, true),
            (r#"{"STATUS":"OK","id":"B-1"}"#, true),
            (r#"{"status":"succeeded","Status":"DECLINED"}"#, true),
            (r#"{"status":"succeeded"}"#, false),
            (r#"{"statusCode":7,"data":{"Status":"DECLINED"}}"#, false),
            (r#"["Status"]"#, false),
        ] {
            let json = serde_json::from_str(body).unwrap();
            assert_eq!(spells_status_otherwise(&json), wanted, "{body}");
        }
    }
}

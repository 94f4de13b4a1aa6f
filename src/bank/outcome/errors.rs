//! Whether a 2xx names an error in place of a verdict.
//!
//! Gateways and adapters answer so. A Lambda behind a gateway answers 200 with `errorMessage` when its time is over. What
//! the bank did by then is not known.

use serde_json::Value;

/// The fields at the top of a body that name an error.
const FIELDS: [&str; 6] = ["error", "errors", "errorCode", "errorMessage", "errorType", "fault"];

/// Texts in these fields that say that there is no error, in any case.
const NO_ERROR: [&str; 4] = ["ok", "success", "none", "false"];

/// Whether a field at the top of the body names an error. Banks write `"errorCode":"00"` into a success, often with a
/// text for people, so such a code outweighs that text.
pub(super) fn names_an_error(json: &Value) -> bool {
    let has_good_code = json.get("errorCode").is_some_and(says_no_error);
    FIELDS.iter().any(|field| {
        let is_outweighed = has_good_code && matches!(*field, "errorMessage" | "errorType");
        !is_outweighed && json.get(*field).is_some_and(is_error)
    })
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

/// Whether a number or a text says that there is no error: zeros, or one of the known texts. An empty text says nothing.
fn says_no_error(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64() == Some(0),
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
}

//! Reads what a request wants moved: which refunds, with the versions that the caller saw, and where to.
//!
//! It looks at no refund.

use serde_json::{Map, Value, json};

use crate::bulk::{AT_ONCE, NamedRef};
use crate::http::Who;
use crate::http::person::{Person, read_list, read_version, unknown_fields};
use crate::refund::draft::FieldError;
use crate::refund::{ChannelName, RefundId};

const KNOWN: [&str; 8] = ["to", "refunds", "refund_refs", "all", "up_to", "dry_run", "reason", "by"];

/// What a request wants moved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MoveRequest {
    pub to: ChannelName,
    /// `None` for all refunds of the channel that may go.
    pub refs: Option<Vec<NamedRef>>,
    /// The newest refund that the caller foresees; refunds that were saved after it stay.
    pub up_to: Option<RefundId>,
    pub is_dry: bool,
    /// Empty in a dry run.
    pub person: Person,
}

/// Reads the body of a request; the errors name every wrong field.
pub(super) fn read(
    object: &Map<String, Value>,
    from: &str,
    who: &Who,
) -> Result<MoveRequest, Vec<FieldError>> {
    let mut wrong = unknown_fields(object, &KNOWN);
    let flag = |name: &str, wrong: &mut Vec<FieldError>| match object.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is_set)) => *is_set,
        value => {
            wrong.push(FieldError::new(name, value, "must be true or false"));
            false
        }
    };
    let (is_all, is_dry) = (flag("all", &mut wrong), flag("dry_run", &mut wrong));
    let to = object.get("to").and_then(Value::as_str).filter(|to| *to != from);
    let to = to.and_then(|to| ChannelName::new(to).ok());
    if to.is_none() {
        let expected = "must be the channel to move to, another one than the refunds leave";
        wrong.push(FieldError::new("to", object.get("to"), expected));
    }
    let refs = named(object, is_all).map_err(|error| wrong.push(error)).ok().flatten();
    let up_to = match object.get("up_to") {
        None | Some(Value::Null) => None,
        value => {
            let id = value.and_then(Value::as_i64).filter(|id| is_all && *id >= 0);
            if id.is_none() {
                let expected = "goes with all only, and must be the up_to of an answer before";
                wrong.push(FieldError::new("up_to", value, expected));
            }
            id.map(RefundId)
        }
    };
    let is_named = !is_dry || ["reason", "by"].iter().any(|field| object.contains_key(*field));
    let person = if is_named {
        Person::read(object, who, &mut wrong)
    } else {
        Person { reason: String::new(), by: String::new() }
    };
    match to {
        Some(to) if wrong.is_empty() => Ok(MoveRequest { to, refs, up_to, is_dry, person }),
        _ => Err(wrong),
    }
}

/// The refunds that a request names; `None` with `all`.
fn named(object: &Map<String, Value>, is_all: bool) -> Result<Option<Vec<NamedRef>>, FieldError> {
    match (is_all, object.get("refunds"), object.get("refund_refs")) {
        (true, None, None) => Ok(None),
        (true, None, refs) => Err(FieldError::new("refund_refs", refs, "goes without all only")),
        (true, refunds, _) => Err(FieldError::new("refunds", refunds, "goes without all only")),
        (false, Some(_), refs @ Some(_)) => {
            Err(FieldError::new("refund_refs", refs, "goes without refunds only"))
        }
        (false, Some(_), None) => {
            let what = "objects with a refund's refund_ref and the version that you saw";
            read_list(object, "refunds", AT_ONCE, what, |value| {
                let object = value.as_object().filter(|object| object.len() == 2)?;
                let refund_ref = read_ref(object.get("refund_ref")?)?;
                Some(NamedRef { refund_ref, seen: Some(read_version(object.get("version")?)?) })
            })
            .and_then(|refs| match NamedRef::with_two_versions(&refs) {
                Some(twice) => {
                    let expected = "is named with two versions; name the one that you saw";
                    Err(FieldError::new("refunds", Some(&json!(twice.refund_ref)), expected))
                }
                None => Ok(Some(refs)),
            })
        }
        (false, None, None) => {
            let expected = format!(
                "must be a list of 1 to {AT_ONCE} refunds with the versions that you saw, such as \
                 [{{\"refund_ref\": \"R-1\", \"version\": 1}}]; or send refund_refs, or \"all\": true"
            );
            Err(FieldError::new("refunds", None, expected))
        }
        (false, None, Some(_)) => {
            let what = "refund refs; or send \"all\": true";
            read_list(object, "refund_refs", AT_ONCE, what, |value| {
                Some(NamedRef { refund_ref: read_ref(value)?, seen: None })
            })
            .map(Some)
        }
    }
}

/// Postgres has no texts with a zero byte.
fn read_ref(value: &Value) -> Option<String> {
    value.as_str().filter(|name| !name.contains('\0')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_channel_refunds_a_reason_and_a_person() {
        let read = |body: &Value| read(body.as_object().unwrap(), "acme", &Who::Anyone);
        let good = json!({ "to": "globex", "refund_refs": ["R-1"], "reason": "acme is down", "by": "ann" });
        let order = read(&good).unwrap();
        let named = |seen| Some(vec![NamedRef { refund_ref: "R-1".to_owned(), seen }]);
        assert_eq!((order.refs, order.is_dry, order.to.as_str()), (named(None), false, "globex"));
        let refunds = json!([{ "refund_ref": "R-1", "version": 7 }]);
        let two_versions =
            json!([{ "refund_ref": "R-1", "version": 7 }, { "refund_ref": "R-1", "version": 8 }]);
        let seen = read(&json!({ "to": "globex", "refunds": refunds, "reason": "x", "by": "ann" })).unwrap();
        assert_eq!(seen.refs, named(Some(7)));
        let all = read(&json!({ "to": "globex", "all": true, "up_to": 0, "dry_run": true })).unwrap();
        assert_eq!((all.refs, all.up_to), (None, Some(RefundId(0))));
        for (bad, field) in [
            (json!({ "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "acme", "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "gl\0", "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "globex", "refund_refs": ["R\0"], "reason": "x", "by": "ann" }), "refund_refs[0]"),
            (json!({ "to": 7, "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            // A program that sends nothing learns the form that no repeat undoes.
            (json!({ "to": "globex", "reason": "x", "by": "ann" }), "refunds"),
            (json!({ "to": "globex", "refund_refs": [], "reason": "x", "by": "ann" }), "refund_refs"),
            (json!({ "to": "globex", "refund_refs": [7], "reason": "x", "by": "ann" }), "refund_refs[0]"),
            (
                json!({ "to": "globex", "refund_refs": ["R-1"], "all": true, "reason": "x", "by": "ann" }),
                "refund_refs",
            ),
            (
                json!({ "to": "globex", "all": "yes", "refund_refs": ["R-1"], "reason": "x", "by": "ann" }),
                "all",
            ),
            (
                json!({ "to": "globex", "refund_refs": ["R-1"], "up_to": 7, "reason": "x", "by": "ann" }),
                "up_to",
            ),
            (json!({ "to": "globex", "all": true, "up_to": "7", "reason": "x", "by": "ann" }), "up_to"),
            (json!({ "to": "globex", "all": true, "up_to": -1, "reason": "x", "by": "ann" }), "up_to"),
            (json!({ "to": "globex", "refund_refs": ["R-1"], "by": "ann" }), "reason"),
            (json!({ "to": "globex", "refund_refs": ["R-1"], "reason": "x" }), "by"),
            (json!({ "to": "globex", "refunds": [], "reason": "x", "by": "ann" }), "refunds"),
            (json!({ "to": "globex", "refunds": ["R-1"], "reason": "x", "by": "ann" }), "refunds[0]"),
            (json!({ "to": "globex", "refunds": two_versions, "reason": "x", "by": "ann" }), "refunds"),
            (
                json!({ "to": "globex", "refunds": [{ "refund_ref": "R-1" }], "reason": "x", "by": "ann" }),
                "refunds[0]",
            ),
            (
                json!({ "to": "globex", "refunds": refunds, "refund_refs": ["R-1"], "reason": "x", "by": "ann" }),
                "refund_refs",
            ),
            (
                json!({ "to": "globex", "refunds": ["R-1"], "all": true, "reason": "x", "by": "ann" }),
                "refunds",
            ),
        ] {
            let fields: Vec<String> = read(&bad).unwrap_err().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, [field], "{bad}");
        }
    }
}

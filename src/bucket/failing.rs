//! Says why a call to Redis failed.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::slot_group::Tag;
use super::{Bucket, BucketError};

impl Bucket {
    /// Notes that a call about these keys failed.
    pub(super) fn failed(
        &self,
        what: &str,
        verb: &'static str,
        tag: &Tag,
        keys: &[String],
        source: RedisError,
    ) -> BucketError {
        let what = what.to_owned();
        // Other errors of a server are about its slots, and end for all verbs at once. `OOM` is an extension. A replica
        // refuses verbs that write and answers the others.
        let is_refusal = matches!(
            source.kind(),
            ErrorKind::Extension
                | ErrorKind::Server(
                    ServerErrorKind::ResponseError
                        | ServerErrorKind::NoPerm
                        | ServerErrorKind::ExecAbort
                        | ServerErrorKind::ReadOnly
                )
        );
        if let Some(wrong) = self.server.wrong_server_of(&source) {
            self.watches.failed(tag, verb, format!("[redis] url {wrong}"), is_refusal);
            return BucketError::WrongServer { what, wrong };
        }
        // Redis before version 7 has the code inside of the text.
        if source.to_string().contains("WRONGTYPE") {
            let why = wrong_type(keys);
            self.watches.failed(tag, verb, why.clone(), is_refusal);
            return BucketError::WrongType { what, why };
        }
        self.watches.failed(tag, verb, source.to_string(), is_refusal);
        BucketError::Ask { what, source }
    }
}

/// What a person does about a key of another type. Redis does not name the key, so this names patterns of all keys of the call.
fn wrong_type(keys: &[String]) -> String {
    /// Of more patterns nobody reads the list.
    const MOST: usize = 8;
    let pattern =
        |key: &String| key.rsplit_once('}').map_or_else(|| key.clone(), |(tag, _)| format!("{tag}}}:*"));
    let mut patterns: Vec<String> = keys.iter().map(pattern).collect();
    patterns.sort();
    patterns.dedup();
    if patterns.len() > MOST {
        let all = |key: &String| key.split_once('{').map(|(prefix, _)| format!("{prefix}*"));
        patterns = keys.iter().find_map(all).into_iter().collect();
    }
    format!(
        "WRONGTYPE: another program wrote a key of {}; find the key with TYPE and delete it: refundd restores it",
        patterns.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_type_is_named_by_patterns_with_the_way_out() {
        let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let few = keys(&["r:{acme}:bucket", "r:{acme}:present", "r:{daily}:limit", "r:clock"]);
        assert_eq!(
            wrong_type(&few),
            "WRONGTYPE: another program wrote a key of r:clock, r:{acme}:*, r:{daily}:*; find the key with TYPE and \
             delete it: refundd restores it"
        );
        let many: Vec<String> = (0..9).map(|nth| format!("r:{{c{nth}}}:bucket")).collect();
        assert!(wrong_type(&many).contains("a key of r:*; "), "{}", wrong_type(&many));
    }
}

//! Refunds and proposals on the command line, with the versions that a person saw, such as 4711@7.
//!
//! A refund may be named by any name that `refundd show` takes. A name of several refunds is refused: a person decides about one.

use std::io::stdin;

use anyhow::bail;

use crate::caller::Names;
use crate::cli::{namesakes, without_mark};
use crate::refund::text::shown;
use crate::refund::{Refund, RefundId, State};
use crate::store::{Store, StoreError};

/// How many refunds with one name are listed.
const MOST: u32 = 5;

/// A refund, and the version that the decision is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedRefund {
    pub id: RefundId,
    /// `None` where the text names no version, so that the person must be asked.
    pub seen: Option<i32>,
}

impl NamedRefund {
    /// Reads the refunds from the command line, or from standard input. A name that is refused refuses no other one.
    pub(super) async fn read_all(
        args: &[String],
        store: &Store,
    ) -> anyhow::Result<Vec<Result<NamedRefund, String>>> {
        let mut named = Vec::new();
        for text in lines(args)? {
            named.push(NamedRefund::read(text.trim(), store).await?);
        }
        Ok(named)
    }

    /// Finds the one refund that `text` names, with or without a version. The inner error says for people why there is none.
    pub(super) async fn read(text: &str, store: &Store) -> Result<Result<NamedRefund, String>, StoreError> {
        let as_id = read_id(text);
        if let Some((id, Some(version))) = as_id {
            return NamedRefund::by_id(text, id, version, store).await;
        }
        let mut found: Vec<(Refund, Option<i32>)> = Vec::new();
        let version = text.rsplit_once('@').and_then(|(name, version)| Some((name, version.parse().ok()?)));
        for (name, seen) in
            [Some((text, None)), version.map(|(name, seen)| (name, Some(seen)))].into_iter().flatten()
        {
            for one in store.find(name, &Names::All, MOST).await?.found {
                if found.iter().all(|(refund, _)| refund.id != one.refund.id) {
                    found.push((one.refund, seen));
                }
            }
        }
        Ok(match (found.as_slice(), as_id) {
            ([(refund, seen)], _) => Ok(NamedRefund { id: refund.id, seen: *seen }),
            ([], Some((id, seen))) => Ok(NamedRefund { id, seen }),
            ([], None) => Err(format!(
                "no refund has the ref, id, request id, bank reference or payment ref `{}`; nothing was changed",
                shown(text)
            )),
            (several, _) => {
                let list: Vec<String> = several
                    .iter()
                    .map(|(refund, _)| format!("{}@{} ({})", refund.id, refund.version, refund.refund_ref))
                    .collect();
                Err(format!(
                    "`{}` names several refunds, such as {}: name each by its id and the version that you saw; nothing was changed",
                    shown(text),
                    shown(&list.join(", "))
                ))
            }
        })
    }

    /// The refund with an id at the version that a person saw, as the lists show it. The text may also name another refund: by
    /// its ref, which the person may have seen at an earlier version, or by any name at this version.
    async fn by_id(
        text: &str,
        id: RefundId,
        version: i32,
        store: &Store,
    ) -> Result<Result<NamedRefund, String>, StoreError> {
        let name = text.split_once('@').map_or(text, |(name, _)| name);
        let mut others = Vec::new();
        for refund_ref in [name, text] {
            others.extend(namesakes::with_ref(refund_ref, store).await?);
        }
        let is_open = |one: &Refund| !matches!(one.state, State::Ready | State::Sending | State::Succeeded);
        let found = store.find(name, &Names::All, MOST).await?.found.into_iter().map(|one| one.refund);
        others.extend(found.filter(|one| one.version == version && is_open(one)));
        Ok(match others.iter().find(|one| one.id != id) {
            Some(other) => Err(format!(
                "`{}` is refund {id}, and also a name of refund {} ({}), which is {} at version {} now. Name the one that you \
                 mean by its request id, such as {}@{}: `refundd show` tells it; nothing was changed",
                shown(text),
                other.id,
                shown(&other.refund_ref),
                other.state,
                other.version,
                other.request_id,
                other.version
            )),
            None => Ok(NamedRefund { id, seen: Some(version) }),
        })
    }
}

/// Reads the ids of proposals from the command line, or from standard input. The version may be missing.
pub(super) fn read_proposals(args: &[String]) -> anyhow::Result<Vec<(i64, Option<i32>)>> {
    let read = |text: &String| match read_id(text) {
        Some((id, seen)) => Ok((id.0, seen)),
        None => bail!(
            "`{}` is no proposal's id: it is a positive whole number, with @ and the version that you saw; \
             nothing was changed",
            shown(text.trim())
        ),
    };
    lines(args)?.iter().map(read).collect()
}

fn lines(args: &[String]) -> anyhow::Result<Vec<String>> {
    if args != ["-"] {
        return Ok(args.to_vec());
    }
    let text = std::io::read_to_string(stdin())?;
    let lines = without_mark(&text).lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    if lines.is_empty() {
        bail!("standard input names nothing; write one name on each line; nothing was changed");
    }
    Ok(lines)
}

fn read_id(text: &str) -> Option<(RefundId, Option<i32>)> {
    let text = text.trim();
    let (id, version) = text.split_once('@').map_or((text, None), |(id, version)| (id, Some(version)));
    Some((RefundId::read(id)?, version.map(str::parse).transpose().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_named_with_the_version_that_was_seen() {
        assert_eq!(read_id(" 4711@7 "), Some((RefundId(4711), Some(7))));
        assert_eq!(read_id("4711"), Some((RefundId(4711), None)));
        for bad in ["", "0", "-1", "x", "@7", "4711@", "4711@x", "4711@7@8", "00004711", "+4711@7"] {
            assert_eq!(read_id(bad), None, "{bad}");
        }
    }
}

//! Two refunds with one name: where refs are numbers, the ref of one refund may be the id of another.
//!
//! The module looks at refs, ids and request ids alone. Its callers say how a person names one of the two.

use anyhow::bail;
use uuid::Uuid;

use crate::caller::Names;
use crate::refund::text::shown;
use crate::refund::{Refund, RefundId};
use crate::store::{Filter, Store, StoreError};

/// How many refunds with a name are looked at for the one with this request id. Others may have the text as their payment ref.
const MOST: u32 = 100;

/// The refund with this ref.
pub(super) async fn with_ref(refund_ref: &str, store: &Store) -> Result<Option<Refund>, StoreError> {
    let filter = Filter { refund_ref: Some(refund_ref.to_owned()), limit: 1, ..Filter::of(Names::All) };
    Ok(store.list(&filter).await?.pop())
}

/// The refunds with this ref, id or request id, each once; the one with the ref comes first.
pub(super) async fn named(name: &str, store: &Store) -> Result<Vec<Refund>, StoreError> {
    let mut refunds: Vec<Refund> = with_ref(name, store).await?.into_iter().collect();
    if let Some(id) = RefundId::read(name) {
        refunds.extend(store.refund(id).await?);
    }
    if Uuid::parse_str(name).is_ok() {
        let found = store.find(name, &Names::All, MOST).await?.found;
        let by_request_id = found.into_iter().filter(|one| one.by.iter().any(|by| by == "request_id"));
        refunds.extend(by_request_id.map(|one| one.refund));
    }
    // No text is both an id and a request id, so one refund at most stands here twice.
    refunds.dedup_by_key(|refund| refund.id);
    Ok(refunds)
}

/// Such as `refund 4711 (R-123)`.
pub(super) fn title(id: RefundId, refund_ref: &str) -> String {
    format!("refund {id} ({})", shown(refund_ref))
}

/// Says that a name is of several refunds, and which ones.
pub(super) fn several(name: &str, refunds: &[Refund]) -> String {
    let list: Vec<String> = refunds
        .iter()
        .map(|refund| {
            format!("{} with the request id {}", title(refund.id, &refund.refund_ref), refund.request_id)
        })
        .collect();
    format!("`{}` names {}", shown(name), list.join(" and "))
}

/// Refuses the refs of a command line if one of them is also the id of another refund: the person may have copied an id.
pub(super) async fn refuse_several(refs: &[String], store: &Store) -> anyhow::Result<()> {
    let mut is_clear = true;
    for name in refs {
        // Most refs are neither numbers nor request ids, and need no look.
        if RefundId::read(name).is_none() && Uuid::parse_str(name).is_err() {
            continue;
        }
        let refunds = named(name, store).await?;
        if refunds.len() > 1 {
            is_clear = false;
            eprintln!("refundd: {}", several(name, &refunds));
        }
    }
    if !is_clear {
        bail!(
            "a ref of the command line is also the id or the request id of another refund. If you mean the refund with this ref, \
             give the ref in a file, or by `--file -` on standard input: --file reads refs alone. Name any other refund by its \
             own ref; nothing was changed"
        );
    }
    Ok(())
}

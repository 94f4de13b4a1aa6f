//! Which refunds a command is about: their refs, from the command line or from a file, or a whole channel.

use std::collections::HashSet;
use std::io::stdin;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::bulk::{AT_ONCE, NamedRef};
use crate::caller::Names;
use crate::cli::{namesakes, without_mark};
use crate::refund::text::shown;
use crate::store::{BulkLook, Store, StoreError};

/// Which refunds a command is about.
#[derive(Debug)]
pub(in crate::cli) enum Which {
    /// Each ref stands here once.
    Refs(Vec<NamedRef>),
    /// All refunds of this channel.
    Channel(String),
}

impl Which {
    /// Refuses texts of the command line that may be about two refunds. A file names refs alone, without versions: an old list
    /// must never mean a refund that it does not name.
    pub(in crate::cli) async fn of(
        refs: Vec<String>,
        file: Option<&PathBuf>,
        channel: Option<String>,
        store: &Store,
    ) -> anyhow::Result<Which> {
        Ok(match (channel, file) {
            (_, Some(file)) => {
                Which::Refs(each_once(read_refs(file)?.into_iter().map(at_any_version).collect()))
            }
            (Some(channel), None) => Which::Channel(channel),
            (None, None) => {
                let refs = with_versions(refs, store).await?;
                if let Some(twice) = NamedRef::with_two_versions(&refs) {
                    bail!(
                        "`{}` is named with two versions, or with one and without; name the one that you saw; nothing was changed",
                        shown(&twice.refund_ref)
                    );
                }
                let refs = each_once(refs);
                let names: Vec<String> = refs.iter().map(|one| one.refund_ref.clone()).collect();
                namesakes::refuse_several(&names, store).await?;
                Which::Refs(refs)
            }
        })
    }
}

/// Reads refs with the versions that a person saw, such as `R-123@7`. A ref may end so itself: the text as a whole comes first.
async fn with_versions(texts: Vec<String>, store: &Store) -> anyhow::Result<Vec<NamedRef>> {
    let mut refs = Vec::with_capacity(texts.len());
    for texts in texts.chunks(AT_ONCE) {
        let asked = texts.iter().filter_map(|text| Some([text.as_str(), split(text)?.0]));
        let asked: Vec<String> = asked.flatten().map(str::to_owned).collect();
        let known = if asked.is_empty() { HashSet::new() } else { known(&asked, store).await? };
        for text in texts {
            refs.push(match split(text) {
                Some((name, version)) if known.contains(text) && known.contains(name) => bail!(
                    "`{}` is the ref of a refund, and also names version {version} of the refund `{}`. If you mean the first one, give its \
                     ref in a file, or by `--file -` on standard input. If you mean the second one, name it without a version; nothing \
                     was changed",
                    shown(text),
                    shown(name)
                ),
                Some((name, version)) if !known.contains(text) => {
                    NamedRef { refund_ref: name.to_owned(), seen: Some(version) }
                }
                _ => at_any_version(text.clone()),
            });
        }
    }
    Ok(refs)
}

/// The ref and the version of a text such as `R-123@7`. A version is written as refundd writes it.
fn split(text: &str) -> Option<(&str, i32)> {
    let (name, digits) = text.rsplit_once('@')?;
    let version = digits.parse::<i32>().ok()?;
    (!name.is_empty() && version >= 0 && version.to_string() == digits).then_some((name, version))
}

fn at_any_version(refund_ref: String) -> NamedRef {
    NamedRef { refund_ref, seen: None }
}

/// Those of these refs that refunds have.
async fn known(refs: &[String], store: &Store) -> Result<HashSet<String>, StoreError> {
    let look = BulkLook { moves: None, channels: Names::All };
    Ok(store.refunds_by_ref(refs, &look).await?.into_iter().map(|one| one.refund_ref).collect())
}

/// In the order in which they were named first.
fn each_once(mut refs: Vec<NamedRef>) -> Vec<NamedRef> {
    let (named, mut seen) = (refs.len(), HashSet::new());
    refs.retain(|one| seen.insert(one.refund_ref.clone()));
    match named - refs.len() {
        0 => {}
        1 => eprintln!("refundd: 1 repeated ref, which counts once"),
        repeated => eprintln!("refundd: {repeated} repeated refs, each of which counts once"),
    }
    refs
}

fn read_refs(file: &Path) -> anyhow::Result<Vec<String>> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(stdin()) } else { std::fs::read_to_string(file) };
    let text = text.with_context(|| format!("failed to read {}", file.display()))?;
    let refs: Vec<String> = without_mark(&text)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    if refs.is_empty() {
        bail!("{} names no refund; write one refund_ref on each line; nothing was changed", file.display());
    }
    Ok(refs)
}

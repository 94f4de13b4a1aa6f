//! Which refunds a command is about: their refs, from the command line or from a file, or a whole channel.

use std::collections::HashSet;
use std::io::stdin;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::bulk::NamedRef;
use crate::cli::{namesakes, without_mark};
use crate::refund::text::shown;
use crate::store::Store;

/// Which refunds a command is about.
#[derive(Debug)]
pub(in crate::cli) enum Which {
    /// Each ref stands here once.
    Refs(Vec<NamedRef>),
    /// All refunds of this channel.
    Channel(String),
}

impl Which {
    /// Refuses refs of the command line that are also ids of other refunds. A file names refs alone, without versions.
    pub(in crate::cli) async fn of(
        refs: Vec<NamedRef>,
        file: Option<&PathBuf>,
        channel: Option<String>,
        store: &Store,
    ) -> anyhow::Result<Which> {
        Ok(match (channel, file) {
            (_, Some(file)) => Which::Refs(each_once(at_any_version(read_refs(file)?))),
            (Some(channel), None) => Which::Channel(channel),
            (None, None) => {
                let refs = each_once(refs);
                let names: Vec<String> = refs.iter().map(|one| one.refund_ref.clone()).collect();
                namesakes::refuse_several(&names, store).await?;
                Which::Refs(refs)
            }
        })
    }
}

/// Refs that name no versions.
pub(in crate::cli) fn at_any_version(refs: Vec<String>) -> Vec<NamedRef> {
    refs.into_iter().map(|refund_ref| NamedRef { refund_ref, seen: None }).collect()
}

/// Reads refs with the versions that a person saw, such as `R-123@7`. A ref may end so itself: the text as a whole comes first.
pub(in crate::cli) async fn with_versions(
    texts: Vec<String>,
    store: &Store,
) -> anyhow::Result<Vec<NamedRef>> {
    let mut refs = Vec::new();
    for text in texts {
        let split =
            text.rsplit_once('@').and_then(|(name, version)| Some((name, version.parse::<i32>().ok()?)));
        let Some((name, version)) = split.filter(|(name, version)| !name.is_empty() && *version >= 0) else {
            refs.push(NamedRef { refund_ref: text, seen: None });
            continue;
        };
        let is_whole = namesakes::with_ref(&text, store).await?.is_some();
        if is_whole && namesakes::with_ref(name, store).await?.is_some() {
            bail!(
                "`{}` is the ref of a refund, and also names version {version} of the refund `{}`. If you mean the first one, give its \
                 ref in a file, or by `--file -` on standard input; nothing was changed",
                shown(&text),
                shown(name)
            );
        }
        refs.push(if is_whole {
            NamedRef { refund_ref: text, seen: None }
        } else {
            NamedRef { refund_ref: name.to_owned(), seen: Some(version) }
        });
    }
    Ok(refs)
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

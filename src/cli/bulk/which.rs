//! Which refunds a command is about: their refs, from the command line or from a file, or a whole channel.

use std::collections::HashSet;
use std::io::stdin;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::{namesakes, without_mark};
use crate::store::Store;

/// Which refunds a command is about.
#[derive(Debug)]
pub(in crate::cli) enum Which {
    /// Each ref stands here once.
    Refs(Vec<String>),
    /// All refunds of this channel.
    Channel(String),
}

impl Which {
    /// Refuses refs of the command line that are also ids of other refunds. A file names refs alone.
    pub(in crate::cli) async fn of(
        refs: Vec<String>,
        file: Option<&PathBuf>,
        channel: Option<String>,
        store: &Store,
    ) -> anyhow::Result<Which> {
        Ok(match (channel, file) {
            (_, Some(file)) => Which::Refs(each_once(read_refs(file)?)),
            (Some(channel), None) => Which::Channel(channel),
            (None, None) => {
                let refs = each_once(refs);
                namesakes::refuse_several(&refs, store).await?;
                Which::Refs(refs)
            }
        })
    }
}

/// In the order in which they were named first.
fn each_once(mut refs: Vec<String>) -> Vec<String> {
    let (named, mut seen) = (refs.len(), HashSet::new());
    refs.retain(|name| seen.insert(name.clone()));
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

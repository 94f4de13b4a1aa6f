//! Two public types never share a name, unless the list says why both may have it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::sources;

/// Names that several types have, each with the reason why nobody mistakes one for another.
const SHARED: &[(&str, &str)] = &[
    (
        "Arrival",
        "a request at the pretend bank, and one in the property tests of limits: judges share no code",
    ),
    ("Args", "the arguments of one command; clap needs one such type for each, and each module has its own"),
    (
        "Caller",
        "a caller with its rights, and the playground's caller for tests; the playground knows no refundd",
    ),
    ("Clock", "the reading of Redis's clock, and the playground's clock of a private server or a node"),
    ("Cluster", "the links to a Redis Cluster, and the whole of all nodes on the page"),
    ("Sentinels", "the addresses of Sentinels, and the playground's private Sentinel servers"),
];

/// The types that this text declares for other modules.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("pub")?;
        let rest = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => rest,
        };
        let rest = rest.strip_prefix(' ')?;
        let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
        name.split(|c: char| !c.is_alphanumeric()).next()
    })
}

#[test]
fn two_public_types_never_share_a_name() {
    let mut places = BTreeMap::<_, Vec<PathBuf>>::new();
    for (path, text) in sources(&["src", "crates/playground/src"], &["rs"]) {
        for name in declared(&text) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    assert!(places.len() > 400, "only {} public types were found", places.len());
    places.retain(|_, places| places.len() > 1);
    let listed: BTreeSet<&str> = SHARED.iter().map(|(name, _)| *name).collect();
    let unused: Vec<&&str> = listed.iter().filter(|name| !places.contains_key(**name)).collect();
    assert!(unused.is_empty(), "the list names types whose names are not shared: {unused:?}");
    places.retain(|name, _| !listed.contains(name.as_str()));
    assert!(places.is_empty(), "{places:#?}");
}

//! Two public types never share a name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::ROOT;

/// The public types that this text declares.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("pub ")?;
        let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
        name.split(|c: char| !c.is_alphanumeric()).next()
    })
}

#[test]
fn two_public_types_never_share_a_name() {
    let (mut folders, mut places) = (vec![Path::new(ROOT).join("src")], BTreeMap::<_, Vec<PathBuf>>::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for name in declared(&text) {
                    places.entry(name.to_owned()).or_default().push(path.clone());
                }
            }
        }
    }
    assert!(places.len() > 200, "only {} public types were found", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

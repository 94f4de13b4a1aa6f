//! Every long file has a reason.

use std::collections::BTreeSet;

use super::sources;

/// A file with more lines has a second subject, or it stands in [`LONG`].
const MOST_LINES: usize = 300;

/// The types of files that people write and read as code.
const TYPES: &[&str] = &["rs", "lua", "sql", "html", "css", "js"];

/// The files with more lines, each with the reason why it stays whole.
const LONG: &[(&str, &str)] = &[
    ("benches/figures.rs", "one function for each figure; they share the stage alone"),
    (
        "benches/torture/world.rs",
        "one value with the servers, nodes and records of a run, which every fault needs",
    ),
];

/// Every such file of the repository, with its number of lines.
fn files() -> Vec<(String, usize)> {
    let found = sources(&["src", "crates", "benches", "tests"], TYPES).into_iter();
    found.map(|(path, text)| (path.to_string_lossy().into_owned(), text.lines().count())).collect()
}

#[test]
fn every_file_over_300_lines_is_listed_with_its_reason() {
    let (files, mut wrong) = (files(), Vec::new());
    assert!(files.len() > 200, "only {} files were found", files.len());
    for (name, lines) in &files {
        let is_listed = LONG.iter().any(|(listed, _)| listed == name);
        if *lines > MOST_LINES && !is_listed {
            wrong.push(format!(
                "{name} has {lines} lines: move its tests or its second subject into a file of their own, or add it \
                 to LONG in tests/it/house/long.rs with the reason why it stays whole"
            ));
        } else if *lines <= MOST_LINES && is_listed {
            wrong.push(format!(
                "{name} has only {lines} lines: remove it from LONG in tests/it/house/long.rs"
            ));
        }
    }
    let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for (name, reason) in LONG {
        if !names.contains(name) {
            wrong.push(format!("{name} is gone: remove it from LONG in tests/it/house/long.rs"));
        }
        assert!(!reason.is_empty(), "{name} has no reason");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

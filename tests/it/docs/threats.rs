//! The tables of threats and of failures name tests that exist.

use std::path::{Path, PathBuf};

use super::ROOT;

/// The text of every Rust file below these folders.
fn code(folders: &[&str]) -> String {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| Path::new(ROOT).join(folder)).collect();
    let mut text = String::new();
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

#[test]
fn every_threat_names_tests_that_exist() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("SECURITY.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.contains("---"));
    let rows: Vec<&str> = rows.filter(|row| !row.starts_with("| threat |")).collect();
    assert!(rows.len() > 20, "only {} threats were found", rows.len());
    tests_exist(&rows);
}

#[test]
fn every_way_of_sending_nothing_names_tests_that_exist() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/runbook.md")).unwrap();
    let table = page.split("| nothing is sent because |").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 20, "only {} ways were found", rows.len());
    for row in &rows {
        assert_eq!(row.matches(" |").count(), 6, "six cells: {row}");
    }
    tests_exist(&rows);
}

/// The last cell of each row names tests.
fn tests_exist(rows: &[&str]) {
    let code = code(&["src", "tests", "crates"]);
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            let is_there = code.contains(&format!("fn {name}(")) || Path::new(ROOT).join(name).exists();
            assert!(is_there, "`{name}` is neither a test nor a file: {row}");
        }
    }
}

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
    let is_heading = |row: &&str| row.starts_with("| threat |") || row.starts_with("| asked for |");
    let rows: Vec<&str> = rows.filter(|row| !is_heading(row)).collect();
    assert!(rows.len() > 20, "only {} threats were found", rows.len());
    tests_exist(&rows);
}

/// The keys of these sections in the reference, whether they are set, a default or an example.
fn keys_of(sections: &[&str], reference: &str) -> Vec<String> {
    let (mut keys, mut section) = (Vec::new(), "");
    for line in reference.lines() {
        let line = line.strip_prefix("#? ").or_else(|| line.strip_prefix('#')).unwrap_or(line);
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_start_matches('[').split(['.', ']']).next().unwrap_or_default();
        } else if sections.contains(&section)
            && let Some((key, _)) = line.split_once(" = ")
            && is_key(key)
        {
            keys.push(key.to_owned());
        }
    }
    keys
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[test]
fn the_table_of_a_security_review_has_every_key_of_the_listener_and_of_callers_and_no_wrong_one() {
    let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    let (page, reference) = (read("SECURITY.md"), read("config/refundd.toml"));
    let table = page.split("| asked for |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells: Vec<&str> = rows.map(|row| row.split(" | ").nth(1).unwrap()).collect();
    // `[http] listen` names the key `listen`.
    let spans = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let named: Vec<&str> =
        spans.filter_map(|span| span.split(' ').next_back().filter(|key| is_key(key))).collect();
    assert!(named.len() > 30, "only {} keys were found", named.len());
    for key in &named {
        assert!(reference.contains(&format!("{key} = ")), "`{key}` is no key of config/refundd.toml");
    }
    let keys = keys_of(&["http", "caller", "review"], &reference);
    assert!(keys.len() > 15, "only {keys:?} were found");
    for key in keys {
        assert!(named.contains(&key.as_str()), "`{key}` stands in no row of the table");
    }
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

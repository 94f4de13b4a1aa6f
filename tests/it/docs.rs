//! The documentation names only things that exist: files, headings, commands, options, make targets and
//! configuration keys.

mod bank_request;
mod routes;
mod sentences;
mod threats;
mod translation;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Every page of the repository: its path and its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/decisions", "systemd", "config", "packaging"] {
        let Ok(entries) = std::fs::read_dir(Path::new(ROOT).join(folder)) else { continue };
        for entry in entries.map(Result::unwrap) {
            if entry.path().extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                pages.push((entry.path(), text));
            }
        }
    }
    assert!(pages.len() > 10, "only {} pages were found", pages.len());
    pages
}

fn name(page: &Path) -> String {
    page.strip_prefix(ROOT).unwrap_or(page).display().to_string()
}

/// The lines inside code fences whose language is one of those, with the number of each line.
fn fenced<'t>(text: &'t str, languages: &[&str]) -> Vec<(usize, &'t str)> {
    let mut lines = Vec::new();
    let mut fence: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                None => Some(languages.contains(&language.trim())),
                Some(_) => None,
            };
        } else if fence == Some(true) {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// The texts between backticks outside fences, with the number of each line.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let mut is_fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (number + 1, span)));
        }
    }
    spans
}

/// What a heading is called in a link, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_fenced = false;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced || !line.starts_with('#') {
            continue;
        }
        let plain = anchor(line.trim_start_matches('#').trim());
        let times = seen.entry(plain.clone()).or_default();
        anchors.insert(if *times == 0 { plain } else { format!("{plain}-{times}") });
        *times += 1;
    }
    anchors
}

#[test]
fn every_link_in_the_docs_leads_somewhere() {
    let mut dead = Vec::new();
    let mut links = 0;
    for (page, text) in pages() {
        for part in text.split("](").skip(1) {
            let Some(target) = part.split(')').next() else { continue };
            if target.contains("://") || target.contains(char::is_whitespace) || target.is_empty() {
                continue;
            }
            links += 1;
            let (path, heading) = target.split_once('#').map_or((target, None), |(p, h)| (p, Some(h)));
            let file = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap_or(Path::new(ROOT)).join(path)
            };
            if !file.exists() {
                dead.push(format!("{}: {target} is no file", name(&page)));
            } else if let Some(heading) = heading
                && !anchors(&std::fs::read_to_string(&file).unwrap()).contains(heading)
            {
                dead.push(format!("{}: {target} names no heading", name(&page)));
            }
        }
    }
    assert!(links > 50, "only {links} links were found");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// The help of one command, or of refundd itself.
fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(command).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a help text lists.
fn listed(help: &str) -> BTreeSet<String> {
    let commands = help.split("Commands:\n").nth(1).unwrap_or_default();
    commands
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_and_option_named_in_the_docs_exists() {
    let top = help(&[]);
    let commands = listed(&top);
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    for command in &commands {
        let mut text = help(&[command]);
        for inner in listed(&text) {
            text.push_str(&help(&[command, &inner]));
        }
        helps.insert(command.clone(), text);
    }
    let mut wrong = Vec::new();
    let mut found = 0;
    for (page, text) in pages() {
        let mut lines = fenced(&text, &["sh", "console", ""]);
        lines.extend(code_spans(&text));
        for (number, line) in lines {
            let line = line.split(" # ").next().unwrap_or_default().trim_start_matches("$ ");
            let mut words = line.split_whitespace().peekable();
            if words.peek().is_none_or(|first| *first != "refundd") {
                continue;
            }
            let words: Vec<&str> =
                words.skip(1).take_while(|w| !matches!(*w, "|" | "&&" | ";" | ">")).collect();
            // A command is a word of small letters; `refundd is …` in prose never stands in backticks.
            let Some(command) = words.iter().find(|w| w.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
            else {
                continue;
            };
            let Some(help) = helps.get(*command).or_else(|| command.starts_with("--").then_some(&top)) else {
                if *command != "help" {
                    wrong.push(format!("{}:{number}: no command `refundd {command}`", name(&page)));
                }
                continue;
            };
            found += 1;
            for option in words.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
                let option =
                    option.split('=').next().unwrap_or(option).trim_end_matches([']', ',', '.', ')']);
                if !help.contains(option) {
                    wrong.push(format!("{}:{number}: `refundd {command}` has no {option}", name(&page)));
                }
            }
        }
    }
    assert!(found > 20, "only {found} commands were found");
    assert!(wrong.is_empty(), "wrong commands:\n{}", wrong.join("\n"));
}

#[test]
fn every_make_target_named_in_the_docs_exists() {
    let makefile = std::fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.']))
        .filter_map(|line| line.split_once(':').map(|(target, _)| target))
        .collect();
    let mut wrong = Vec::new();
    let mut found = 0;
    for (page, text) in pages() {
        let mut lines = fenced(&text, &["sh", "console", ""]);
        lines.extend(code_spans(&text));
        for (number, line) in lines {
            let mut words = line.split_whitespace().skip_while(|word| word.contains('='));
            if words.next() != Some("make") {
                continue;
            }
            if let Some(target) = words.find(|word| !word.contains('=')) {
                found += 1;
                if !targets.contains(target) {
                    wrong.push(format!("{}:{number}: no target `make {target}`", name(&page)));
                }
            }
        }
    }
    assert!(found > 10, "only {found} targets were found");
    assert!(wrong.is_empty(), "wrong targets:\n{}", wrong.join("\n"));
}

#[test]
fn every_configuration_key_in_the_docs_exists() {
    let reference = std::fs::read_to_string(Path::new(ROOT).join("config/refundd.toml")).unwrap();
    // `key = value`, `#key = value`, `#? key = value`, and the keys of inline tables.
    let keys = |line: &str| -> Vec<String> {
        let line = line.trim_start_matches(['#', '?', ' ']);
        let is_key = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let mut parts = line.split('=').rev().skip(1);
        parts
            .by_ref()
            .filter_map(|before| before.trim_end().rsplit([' ', '{', ',']).next())
            .filter(|word| is_key(word))
            .map(str::to_owned)
            .collect()
    };
    let known: BTreeSet<String> = reference.lines().flat_map(keys).collect();
    let sections: BTreeSet<&str> = reference
        .lines()
        .map(|line| line.trim_start_matches(['#', '?', ' ']))
        .filter_map(|line| line.strip_prefix('[')?.trim_start_matches('[').split(['.', ']']).next())
        .collect();
    let mut wrong = Vec::new();
    let mut found = 0;
    for (page, text) in pages() {
        for (number, line) in fenced(&text, &["toml"]) {
            let line = line.split(" #").next().unwrap_or_default().trim();
            if let Some(section) = line.strip_prefix('[') {
                let section = section.trim_start_matches('[').split(['.', ']']).next().unwrap_or_default();
                if !sections.contains(section) {
                    wrong.push(format!("{}:{number}: no section [{section}]", name(&page)));
                }
                continue;
            }
            for key in keys(line) {
                found += 1;
                if !known.contains(&key) {
                    wrong.push(format!("{}:{number}: no key `{key}` in config/refundd.toml", name(&page)));
                }
            }
        }
    }
    assert!(found > 10, "only {found} keys were found");
    assert!(wrong.is_empty(), "wrong keys:\n{}", wrong.join("\n"));
}

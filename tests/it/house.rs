//! The map in `src/lib.rs` is true, and no modules import each other in a circle.

mod long;
mod mirror;
mod names;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

type Module = Vec<String>;

/// One file below a crate's root.
struct File {
    path: PathBuf,
    module: Module,
    /// Declared under `#[cfg(test)]`, or below a module that is.
    is_test: bool,
    /// What it imports, from the crate's root, with the name of the imported thing as last part.
    imports: Vec<Vec<String>>,
}

/// Every file of these types below these folders, by its path from the repository's root, with its text.
fn sources(folders: &[&str], types: &[&str]) -> Vec<(PathBuf, String)> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| Path::new(ROOT).join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| types.iter().any(|known| extension == *known))
            {
                let text = std::fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(ROOT).unwrap().to_owned(), text));
            }
        }
    }
    files
}

/// Every module of the crate whose root stands in `folder`.
fn files(folder: &str) -> Vec<File> {
    let mut texts = Vec::new();
    for (path, text) in sources(&[folder], &["rs"]) {
        let module = path.strip_prefix(folder).unwrap().with_extension("");
        let module: Module = module.iter().map(|part| part.to_string_lossy().into()).collect();
        if !["lib", "main"].contains(&module[0].as_str()) {
            texts.push((path, module, text));
        }
    }
    texts.sort();
    let tests: Vec<Module> = texts
        .iter()
        .flat_map(|(_, module, text)| {
            let declared = text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| {
                let (name, _) = rest.split_once(';')?;
                Some([module.as_slice(), &[name.to_owned()]].concat())
            });
            declared.collect::<Vec<_>>()
        })
        .collect();
    texts
        .into_iter()
        .map(|(path, module, text)| File {
            is_test: tests.iter().any(|test| module.starts_with(test)),
            imports: imports(&text, &module),
            path,
            module,
        })
        .collect()
}

/// The text without comments and without the modules of tests inside it.
fn product(text: &str) -> String {
    let (mut kept, mut lines) = (String::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.ends_with('{')) {
            let _end = lines.find(|line| *line == "}");
        } else {
            kept.push_str(line.split("//").next().unwrap_or_default());
            kept.push('\n');
        }
    }
    kept
}

/// Every path in the text that begins with `crate` or `super`, from the crate's root.
fn imports(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let text = product(text);
    let (mut words, mut rest) = (Vec::new(), text.as_str());
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match rest.find(|c| !is_word(c)).unwrap_or(rest.len()) {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            length => length,
        };
        let (word, after) = rest.split_at(length);
        if !word.trim().is_empty() {
            words.push(word);
        }
        rest = after;
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let begins = ["crate", "super"].contains(&words[at]) && words.get(at + 1) == Some(&"::");
        if begins && (at == 0 || words[at - 1] != "::") {
            tree(&words, &mut at, &mut Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    let from_root = |path: Vec<&str>| {
        let up = path.iter().take_while(|part| **part == "super").count();
        let base = if up == 0 { &[][..] } else { &module[..module.len().saturating_sub(up)] };
        let rest = path[up.max(1)..].iter().map(|part| (*part).to_owned());
        base.iter().cloned().chain(rest).collect()
    };
    found.into_iter().map(from_root).collect()
}

/// One branch of a `use`, or one path in the code: `crate::a::{b, c::d}` is `crate a b` and `crate a c d`.
fn tree<'t>(words: &[&'t str], at: &mut usize, path: &mut Vec<&'t str>, found: &mut Vec<Vec<&'t str>>) {
    let length = path.len();
    loop {
        match words.get(*at) {
            Some(&"{") => {
                while words.get(*at).is_some_and(|word| *word != "}") {
                    *at += 1;
                    if words.get(*at) != Some(&"}") {
                        tree(words, at, path, found);
                    }
                    // A name that it is given here.
                    while words.get(*at).is_some_and(|word| ![",", "}"].contains(word)) {
                        *at += 1;
                    }
                }
                *at += 1;
                break;
            }
            Some(&word) => {
                path.push(word);
                *at += 1;
            }
            None => break,
        }
        if words.get(*at) == Some(&"::") {
            *at += 1;
        } else {
            found.push(path.clone());
            break;
        }
    }
    path.truncate(length);
}

/// The module that a path leads to or into; empty for the crate's root.
fn target(import: &[String], modules: &BTreeSet<Module>) -> Module {
    let lengths = (0..=import.len()).rev();
    lengths.map(|length| import[..length].to_vec()).find(|path| modules.contains(path)).unwrap_or_default()
}

/// From each module to the siblings that it imports, with the place of one such import.
type Edges = BTreeMap<Module, BTreeMap<Module, String>>;

/// The imports of the shortest circle, if there is one.
fn shortest_circle(edges: &Edges) -> Vec<String> {
    let mut shortest: Option<Vec<&str>> = None;
    for start in edges.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), VecDeque::from([(start, Vec::new())]));
        while let Some((module, places)) = next.pop_front() {
            if module == start && !places.is_empty() {
                if shortest.as_ref().is_none_or(|known| places.len() < known.len()) {
                    shortest = Some(places);
                }
                break;
            }
            for (other, place) in edges.get(module).into_iter().flatten() {
                if seen.insert(other) {
                    next.push_back((other, [places.as_slice(), &[place.as_str()]].concat()));
                }
            }
        }
    }
    shortest.unwrap_or_default().into_iter().map(str::to_owned).collect()
}

#[test]
fn a_room_knows_only_rooms_above_it_and_none_of_its_own_paragraph() {
    let map = std::fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    let rooms: BTreeMap<&str, usize> = map
        .split("\n\n")
        .enumerate()
        .flat_map(|(nth, paragraph)| paragraph.lines().map(move |line| (line, nth)))
        .filter_map(|(line, nth)| Some((line.strip_prefix("pub mod ")?.strip_suffix(';')?, nth)))
        .collect();
    assert!(rooms.len() > 20, "only {} rooms were found", rooms.len());
    let (mut checked, mut wrong) = (0, BTreeSet::new());
    for file in files("src").iter().filter(|file| !file.is_test) {
        let room = file.module[0].as_str();
        let own = rooms.get(room).unwrap_or_else(|| panic!("src/lib.rs does not name `{room}`"));
        for import in &file.imports {
            let Some(other) = import.first() else { continue };
            let Some(paragraph) = rooms.get(other.as_str()).filter(|_| other != room) else { continue };
            checked += 1;
            if paragraph >= own {
                wrong.insert(format!("{}: crate::{}", file.path.display(), import.join("::")));
            }
        }
    }
    assert!(checked > 200, "only {checked} imports were found");
    assert!(wrong.is_empty(), "these import a room that does not stand above their own: {wrong:#?}");
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let mut circles = Vec::new();
    let mut crates = ["src", "crates/playground/src", "tests/sim"].map(str::to_owned).to_vec();
    for entry in std::fs::read_dir(Path::new(ROOT).join("benches")).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            crates.push(format!("benches/{}", entry.file_name().display()));
        }
    }
    for folder in crates {
        let files = files(&folder);
        let modules: BTreeSet<Module> = files.iter().map(|file| file.module.clone()).collect();
        let mut edges = Edges::new();
        for file in &files {
            for import in &file.imports {
                let other = target(import, &modules);
                let shared = file.module.iter().zip(&other).take_while(|(a, b)| a == b).count();
                let is_sibling = shared < file.module.len() && shared < other.len();
                // Tests may use rooms that stand below.
                if is_sibling && !(file.is_test && shared == 0) {
                    let place = format!("{}: {}", file.path.display(), import.join("::"));
                    let (from, to) = (&file.module[..=shared], &other[..=shared]);
                    edges.entry(from.to_vec()).or_default().insert(to.to_vec(), place);
                }
            }
        }
        circles.extend(shortest_circle(&edges));
    }
    assert!(circles.is_empty(), "these imports are a circle: {circles:#?}");
}

#[test]
fn every_route_of_a_node_stands_in_the_table_of_routes() {
    let adds_routes = |file: &&File| {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&file.path)).unwrap();
        !file.is_test && product(&text).contains(".route(")
    };
    let found: Vec<PathBuf> = files("src").iter().filter(adds_routes).map(|file| file.path.clone()).collect();
    assert_eq!(
        found,
        [Path::new("src/http/routes.rs")],
        "only its table says what a route needs of a caller"
    );
}

#[test]
fn every_form_of_an_import_is_seen_and_tests_are_not() {
    let text = "
use crate::a::{B, c::{self, D as E}, f};
use super::g;
pub use super::super::h::*;
pub(super) fn one() -> crate::i::J { std::fmt::k() } // crate::comment
#[cfg(test)]
mod tests {
    use crate::tests_only;
}
fn last() { super::l() }
";
    let module = ["room", "part", "file"].map(str::to_owned);
    let found: Vec<String> = imports(text, &module).iter().map(|path| path.join(" ")).collect();
    let wanted = ["a B", "a c self", "a c D", "a f", "room part g", "room h *", "i J", "room part l"];
    assert_eq!(found, wanted);
}

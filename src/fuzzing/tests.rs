//! Runs every seed and mutations of the seeds through every target. The mutations are the same in each run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{FuzzTarget, TARGETS};

/// Bounds of the mutations of one target: the time keeps a slow machine's run short.
const MUTATIONS: usize = 20_000;
const LONGEST: Duration = Duration::from_secs(2);
/// One input takes no longer than this, also without optimisation. Some seeds were found because they took minutes.
const LONGEST_INPUT: Duration = Duration::from_secs(2);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds")
}

/// The seeds of a target, by their names.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut seeds: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder().join(target))
        .unwrap_or_else(|error| panic!("the seeds of {target}: {error}"))
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().display().to_string(), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

/// Runs one input. Says what happened if the input breaks a property, and where it is kept.
fn run(name: &str, target: FuzzTarget, of: &str, input: &[u8]) -> Result<(), String> {
    let began = Instant::now();
    let is_well = catch_unwind(AssertUnwindSafe(|| target(input))).is_ok();
    let took = began.elapsed();
    if is_well && took <= LONGEST_INPUT {
        return Ok(());
    }
    let file = std::env::temp_dir().join(format!("refundd-fuzz-{name}-{}", std::process::id()));
    std::fs::write(&file, input).unwrap();
    Err(format!("target {name}, {of}, took {took:?}: see {}, and make it a seed", file.display()))
}

#[test]
fn every_target_has_seeds_and_every_folder_of_seeds_a_target() {
    let named: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().display().to_string())
        .collect();
    assert_eq!(found, named);
    let manifest = std::fs::read_to_string(folder().with_file_name("Cargo.toml")).unwrap();
    for name in &named {
        assert!(seeds(name).len() >= 3, "{name} has too few seeds");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml has no binary {name}");
    }
}

/// The name of a seed says what it is. One that was found begins with `found-`.
#[test]
fn no_seed_breaks_a_property() {
    let mut wrong = Vec::new();
    for (name, target) in TARGETS {
        for (seed, input) in seeds(name) {
            wrong.extend(run(name, target, &format!("seed {seed}"), &input).err());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_mutation_of_a_seed_breaks_a_property() {
    std::thread::scope(|scope| {
        for (name, target) in TARGETS {
            scope.spawn(move || {
                let (seeds, mut rng, began) = (seeds(name), Rng::with_seed(16), Instant::now());
                let mut mutations = 0;
                while mutations < MUTATIONS && began.elapsed() < LONGEST {
                    let (seed, input) = &seeds[rng.usize(..seeds.len())];
                    let (_, other) = &seeds[rng.usize(..seeds.len())];
                    let mutated = mutated(input, other, &mut rng);
                    if let Err(wrong) =
                        run(name, target, &format!("mutation {mutations}, of {seed}"), &mutated)
                    {
                        panic!("{wrong}");
                    }
                    mutations += 1;
                }
                println!("{name}: {mutations} mutations of {} seeds", seeds.len());
            });
        }
    });
}

/// Parts that parsers treat in special ways.
const PARTS: [&[u8]; 24] = [
    b"",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\0",
    b"\x1b[2J",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-1",
    b"0",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"1e308",
    b"4111 1111 1111 1111",
    b"\xe2\x80\xae",
    b"\xff",
];

/// The input after one to four small changes.
fn mutated(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(..=bytes.len());
        let end = (at + rng.usize(..=16)).min(bytes.len());
        match rng.u8(..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            2 => drop(bytes.drain(at..end)),
            3 => drop(bytes.splice(at..at, PARTS[rng.usize(..PARTS.len())].iter().copied())),
            4 => drop(bytes.splice(at..end, PARTS[rng.usize(..PARTS.len())].iter().copied())),
            5 => bytes.extend_from_within(at..end),
            6 => {
                let from = rng.usize(..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let part: Vec<u8> = bytes[at..end].to_vec();
                for _ in 0..rng.usize(..8) {
                    drop(bytes.splice(at..at, part.iter().copied()));
                }
            }
        }
    }
    bytes
}

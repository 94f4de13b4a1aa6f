//! The zoo: known mistakes of systems like this one. Each is put into the product's own statements or scripts, or
//! into the order of a node's steps, and a property must catch each.
//!
//! A mistake in a statement is put in on the statement's way to Postgres (`wire`). A mistake in a script is put in on
//! the script's way to the interpreter. If the text that a mistake replaces is gone, the zoo fails: no mistake
//! drops out silently. A parameter with a name stands in a mistake as in the product's text: `:node`.

mod claims;
mod clocks;
mod harmless;
mod hazards;
mod order;
mod scripts;
mod uncertain;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::game::{Flaw, Game};
use super::machine::{number, on_a_runtime, workers};
use super::mistake::Mistake;
use super::patch::{Patch, has, patched};
use super::plan::climate::{self, Climate};
use super::run::play;
use super::stage::Stage;
use super::wire::Rewrite;

#[derive(Debug, Clone, Copy)]
pub enum Where {
    Statement(Patch),
    Script(Patch),
    Order(Mistake),
}

#[derive(Debug, Clone, Copy)]
pub struct Bug {
    pub name: &'static str,
    pub at: Where,
    /// It breaks no property, because another check stands behind it.
    pub harmless: bool,
}

impl Bug {
    /// The climate in which the mistake is played.
    fn climate(&self) -> Climate {
        let of = hazards::OF.iter().find(|(_, bugs)| bugs.contains(&self.name));
        of.map_or(climate::USUAL, |(name, _)| climate::named(name))
    }
}

/// Parts of the names of mistakes that a few seeds catch.
const SOON: &str = "straight back to ready|a row in any state|settling again|at the pause|at the deadline|raise the epoch\
    |writes no permits|never shown to a person|before the answer to its claim|claim whose answer was lost|used after it closed\
    |own clock|one permit of several|restored without the spent|can be cancelled|knows no keys|forgot its key\
    |only the first|not found fails the refund|sent without a permit|in a bucket twice|without a confirmation";

fn all() -> Vec<Bug> {
    let bug = |at: fn(Patch) -> Where, list: &'static [(&'static str, Patch)], harmless| {
        list.iter().map(move |&(name, patch)| Bug { name, at: at(patch), harmless })
    };
    let order =
        order::ALL.iter().map(|&(name, mistake)| Bug { name, at: Where::Order(mistake), harmless: false });
    let statements = [claims::ALL, uncertain::ALL, clocks::ALL].into_iter();
    statements
        .flat_map(|list| bug(Where::Statement, list, false))
        .chain(bug(Where::Script, scripts::ALL, false))
        .chain(order)
        .chain(bug(Where::Statement, harmless::STATEMENTS, true))
        .chain(bug(Where::Script, harmless::SCRIPTS, true))
        .collect()
}

/// The names of mistakes whose texts the product does not have any more, and the names in `hazards` that no mistake
/// has.
pub fn rotten() -> Vec<String> {
    let statements: Vec<&str> = refundd::store::statements().into_iter().map(|(_, text)| text).collect();
    let scripts: Vec<String> = ["src/bucket/lua", "src/limiter/lua"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap())
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let bugs = all();
    let gone = bugs.iter().filter(|bug| {
        let is_there = |text: &str| match bug.at {
            Where::Statement(_) => statements.iter().any(|statement| has(statement, text)),
            Where::Script(_) => scripts.iter().any(|script| script.contains(text)),
            Where::Order(_) => true,
        };
        match bug.at {
            Where::Statement(patch) | Where::Script(patch) => patch.iter().any(|(from, _)| !is_there(from)),
            Where::Order(_) => false,
        }
    });
    let hunted = hazards::OF.iter().flat_map(|(climate, names)| {
        climate::named(climate);
        names.iter().copied()
    });
    let unknown = hunted.filter(|name| bugs.iter().all(|bug| bug.name != *name));
    gone.map(|bug| bug.name).chain(unknown).map(str::to_owned).collect()
}

/// The result of playing one mistake.
struct Caught {
    bug: Bug,
    seeds: u64,
    took: Duration,
    /// The seed and the property that caught it, if any.
    by: Option<(u64, &'static str)>,
    /// Whether the text was there to be replaced.
    applied: bool,
}

async fn hunt(bug: Bug, most: u64) -> Caught {
    let applied = Arc::new(AtomicBool::new(matches!(bug.at, Where::Order(_))));
    let mut flaw = Flaw { mistake: None, patch: None };
    let mut of_statements: Patch = &[];
    match bug.at {
        Where::Statement(patch) => of_statements = patch,
        Where::Script(patch) => flaw.patch = Some(patch),
        Where::Order(mistake) => flaw.mistake = Some(mistake),
    }
    let is_applied = Arc::clone(&applied);
    let rewrite: Rewrite = Arc::new(move |text| {
        let changed = patched(text, of_statements).inspect(|_| is_applied.store(true, Ordering::Relaxed));
        let changed = patched(changed.as_deref().unwrap_or(text), harmless::UNCHECKED).or(changed);
        patched(changed.as_deref().unwrap_or(text), harmless::UNCOUNTED).or(changed)
    });
    let mut stage = Stage::new(Some(rewrite)).await;
    let began = Instant::now();
    let mut caught = Caught { bug, seeds: 0, took: Duration::ZERO, by: None, applied: false };
    let (first, climate) = (number("FIRST").unwrap_or(1), bug.climate());
    for seed in first..first + most {
        caught.seeds += 1;
        let run = play(&mut stage, Game { seed, climate, flaw }, None, false).await;
        if let Some(violation) = run.violation {
            caught.by = Some((seed, violation.property));
            break;
        }
    }
    caught.took = began.elapsed();
    caught.applied = applied.load(Ordering::Relaxed) || stage.redis.was_patched();
    caught
}

/// Plays every mistake, or with `soon` only those that show soon, and prints the table. `most` and `harmless` are how
/// many seeds a mistake is played at most. The error names the mistakes that were not caught as expected.
pub fn let_loose(most: u64, harmless: u64, soon: bool) -> Result<(), String> {
    let only = if soon { Some(SOON.to_owned()) } else { std::env::var("ONLY").ok() };
    let bugs: Vec<Bug> = all()
        .into_iter()
        .filter(|bug| only.as_ref().is_none_or(|only| only.split('|').any(|only| bug.name.contains(only))))
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(|| {
                while let Some(&bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let caught = on_a_runtime(hunt(bug, if bug.harmless { harmless } else { most }));
                    let property = caught.by.map_or("nothing", |(_, property)| property);
                    eprintln!(
                        "{}: {} seeds, {:.1} s, {property}",
                        bug.name,
                        caught.seeds,
                        caught.took.as_secs_f64()
                    );
                    done.lock().unwrap().push(caught);
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let mut wrong = Vec::new();
    println!("{:<66} {:<24} {:>6} {:>9}  caught by", "mistake", "climate", "seeds", "seconds");
    for bug in &bugs {
        let Some(caught) = done.iter().find(|caught| caught.bug.name == bug.name) else { continue };
        let by = match caught.by {
            Some((seed, property)) => format!("{property} (seed {seed})"),
            None if bug.harmless => "nothing, as it should: something else stands behind it".to_owned(),
            None => "NOTHING".to_owned(),
        };
        println!(
            "{:<66} {:<24} {:>6} {:>9.1}  {by}",
            bug.name,
            bug.climate().name,
            caught.seeds,
            caught.took.as_secs_f64()
        );
        if !caught.applied {
            wrong.push(format!("{}: its text is not there any more", bug.name));
        } else if caught.by.is_some() == bug.harmless {
            wrong.push(format!("{}: {by}", bug.name));
        }
    }
    let harmful: Vec<&Caught> = done.iter().filter(|caught| !caught.bug.harmless).collect();
    let caught = harmful.iter().filter(|caught| caught.by.is_some()).count();
    let mut seeds: Vec<u64> = harmful.iter().map(|caught| caught.seeds).collect();
    let mut took: Vec<f64> = harmful.iter().map(|caught| caught.took.as_secs_f64()).collect();
    seeds.sort_unstable();
    took.sort_by(f64::total_cmp);
    if !seeds.is_empty() {
        println!(
            "caught {caught} of {}; median {} seeds, {:.1} s; most {} seeds",
            harmful.len(),
            seeds[seeds.len() / 2],
            took[took.len() / 2],
            seeds[seeds.len() - 1]
        );
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

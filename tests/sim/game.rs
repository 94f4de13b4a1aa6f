//! What a run plays: a seed, its climate and its mistake.

use super::mistake::Mistake;
use super::patch::Patch;
use super::plan::climate::Climate;

/// The mistake that a run plays with, if any.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flaw {
    pub mistake: Option<Mistake>,
    pub patch: Option<Patch>,
}

/// One game.
#[derive(Debug, Clone, Copy)]
pub struct Game {
    pub seed: u64,
    pub climate: Climate,
    pub flaw: Flaw,
}

impl Game {
    /// A game in which nothing is wrong with the product.
    pub fn fair(seed: u64, climate: Climate) -> Self {
        Game { seed, climate, flaw: Flaw::default() }
    }
}

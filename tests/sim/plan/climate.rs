//! Climates: worlds in which one hazard is more frequent than elsewhere. A mistake that rarely shows is played in the
//! climate of its hazard. The properties are the same in all climates.

mod limits;
mod refunds;

use playground::rule::TestAlgorithm;

use super::Fault;
use super::step::Step;

/// The inclination of a world. A field that is `None` is drawn as usual.
#[derive(Debug, Clone, Copy)]
pub struct Climate {
    pub name: &'static str,
    pub algorithms: &'static [TestAlgorithm],
    pub limits: Option<usize>,
    pub permits: Option<(u32, u32)>,
    pub per_ms: &'static [u64],
    /// In percent of `per`.
    pub lateness: &'static [u64],
    /// Every refund is saved at the start, and each channel has many slots.
    pub busy: bool,
    pub on_unknown: Option<&'static str>,
    /// The bank often leaves the result open, and the run gives it time.
    pub unsure: Option<bool>,
    /// The troubles of sends, by their numbers in `Course::draw`.
    pub bank: Option<&'static [u32]>,
    /// The troubles of inquiries, by their numbers in `Reply::draw`.
    pub inquiries: Option<&'static [u32]>,
    /// A step that comes late on all nodes.
    pub late: Option<Step>,
    pub files: Option<u8>,
    /// The longest time to open a connection, in us.
    pub dial: Option<i64>,
    /// Whether two files differ in their policies.
    pub policies: Option<bool>,
    /// The longest time to read the ledger for a restore, in us.
    pub ledger: i64,
    pub trouble: Option<u8>,
    pub pace: Option<i64>,
    /// These faults and no others.
    pub faults: Option<&'static [Fault]>,
    /// How often each of these steps is drawn, in thirds of the usual.
    pub often: &'static [(Step, u32)],
}

/// No inclination: the climate that `make sim` plays.
pub const USUAL: Climate = Climate {
    name: "usual",
    algorithms: &TestAlgorithm::ALL,
    limits: None,
    permits: None,
    per_ms: &[500, 1_000, 3_000, 12_000],
    lateness: &[4, 15, 40],
    busy: false,
    on_unknown: None,
    unsure: None,
    bank: None,
    inquiries: None,
    late: None,
    files: None,
    dial: None,
    policies: None,
    ledger: 0,
    trouble: None,
    pace: None,
    faults: None,
    often: &[],
};

/// Every climate.
pub fn all() -> impl Iterator<Item = &'static Climate> {
    std::iter::once(&USUAL).chain(limits::ALL).chain(refunds::ALL)
}

/// The climate of that name. Panics if there is none.
pub fn named(name: &str) -> Climate {
    *all().find(|climate| climate.name == name).unwrap_or_else(|| panic!("no climate is called {name}"))
}

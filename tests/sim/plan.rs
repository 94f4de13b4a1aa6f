//! The plan of a seed: how many nodes, under which limits, and which faults may happen. Each seed has only some of
//! the faults, some often and some seldom, so seeds differ in kind.

pub mod climate;
pub mod step;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use playground::rule::TestAlgorithm;
use refundd::channel::Channel;
use refundd::config::Config;

use super::bank::Moods;
use super::clock::micros;
use climate::Climate;
use step::Step;

/// The faults that a run may have; one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Crash,
    Flush,
    Restore,
    Fork,
    Clock,
    Pause,
    Reload,
    Cancel,
    Acquire,
    Takeover,
    Move,
    PostgresClock,
    Retire,
}

#[derive(Debug)]
pub struct Plan {
    pub nodes: usize,
    /// The channels of each file.
    pub files: Vec<Vec<Arc<Channel>>>,
    /// The same channels at another bank, which knows nothing of the first.
    pub moved: Vec<Vec<Arc<Channel>>>,
    /// How many refunds are saved at the start; more may come.
    pub refunds: u32,
    /// How many steps are drawn.
    pub draws: u32,
    /// About how much time passes at once, in us.
    pub pace: i64,
    pub moods: Moods,
    /// How many of a hundred calls to Redis or Postgres fare badly.
    pub trouble: u8,
    /// The longest way to Redis or Postgres, in us.
    pub slow: i64,
    /// The longest time to open a connection to the bank, in us.
    pub dial: i64,
    /// The longest time to read the ledger for a restore, in us.
    pub ledger: i64,
    faults: u32,
    /// A node that is seldom drawn: its claims and answers are late.
    pub sluggish: Option<usize>,
    /// A step that comes late on all nodes.
    pub late: Option<Step>,
    /// How much more or less often each step is drawn than usual, in thirds.
    pub often: Vec<u32>,
}

const OTHER_BANK: &str = "127.0.0.1:10";

/// Which of the two banks a channel goes to.
pub fn bank_of(channel: &Channel) -> usize {
    usize::from(channel.endpoint.authority().is_some_and(|authority| authority.as_str() == OTHER_BANK))
}

impl Plan {
    pub fn draw(rng: &mut Rng, climate: &Climate) -> Self {
        let channels = if rng.u8(0..4) == 0 { 2 } else { 1 };
        // With `unsure`, the bank often leaves the result open, it can be asked, and it has time to answer.
        let unsure = climate.unsure.unwrap_or_else(|| rng.u8(0..3) == 0);
        let limits = climate.limits.unwrap_or_else(|| rng.usize(0..=2));
        let files = if rng.u8(0..3) == 0 { 2 } else { 1 };
        let files = climate.files.map_or(files, usize::from);
        let texts = limits_of(rng, limits, files, climate);
        let tail = channels_of(rng, channels, limits, unsure, climate);
        let late: &[Option<Step>] = if unsure {
            &[
                None,
                Some(Step::Settle),
                Some(Step::SettleInquiry),
                Some(Step::SettleInquiry),
                Some(Step::Fill),
            ]
        } else {
            &[None, None, None, None, Some(Step::Settle), Some(Step::TakeBack), Some(Step::Fill)]
        };
        let late = climate.late.or(*rng.choice(late).unwrap_or(&None));
        // Where inquiry outcomes are settled late, a person has decided meanwhile.
        let people_are_busy = late == Some(Step::SettleInquiry);
        // A second file may have other policies. The bank fits the policies of both files.
        let other = climate.policies.unwrap_or_else(|| rng.bool());
        let tails = [tail.concat(), tail.with_other_policies(rng, limits, unsure, climate, other)];
        let at = |bank: &str| {
            let read = |(text, tail): (&String, &String)| {
                read(&format!("{text}{}", tail.replace("127.0.0.1:9", bank)))
            };
            texts.iter().zip(&tails).map(read).collect()
        };
        let (files, moved) = (at("127.0.0.1:9"), at(OTHER_BANK));
        Plan {
            nodes: rng.usize(2..=3),
            files,
            moved,
            refunds: if climate.busy { 16 } else { *rng.choice(&[2, 4, 8, 16]).unwrap_or(&4) },
            draws: if unsure { rng.u32(160..=400) } else { rng.u32(80..=320) },
            pace: climate.pace.unwrap_or_else(|| pace_of(rng, unsure)),
            moods: if unsure { Moods::draw_unsure(rng) } else { Moods::draw(rng) }
                .inclined(climate.bank, climate.inquiries),
            trouble: climate.trouble.unwrap_or_else(|| *rng.choice(&[0, 0, 3, 10, 25]).unwrap_or(&0)),
            slow: *rng.choice(&[0, 300, 1_000, 3_000, 20_000]).unwrap_or(&300),
            faults: climate.faults.map_or_else(|| rng.u32(..), bits),
            late,
            ledger: climate.ledger,
            sluggish: (rng.u8(0..3) == 0).then_some(0),
            often: step::tempers(rng, people_are_busy, climate.often),
            dial: climate
                .dial
                .unwrap_or_else(|| *rng.choice(&[0, 0, 0, 5_000, 60_000, 500_000]).unwrap_or(&0)),
        }
    }

    /// How long a channel's bank knows a key, in us; `None` where no file relies on that.
    pub fn remembers(&self, channel_index: usize) -> Option<i64> {
        self.files.iter().filter_map(|file| file[channel_index].on_unknown.key_retention().map(micros)).max()
    }

    /// The shortest grace after which some file takes "not found" of a channel's bank for final. From then on it is
    /// final at the bank, too.
    pub fn final_after(&self, channel_index: usize) -> Option<Duration> {
        let trusts = self
            .files
            .iter()
            .filter_map(|file| file[channel_index].inquiry.as_ref())
            .map(|inquiry| inquiry.trust);
        trusts.filter(|trust| trust.not_found_is_final).map(|trust| trust.grace).min()
    }

    pub fn has(&self, fault: Fault) -> bool {
        // A clock that is set hides many other defects, so few seeds set one.
        let is_set = |fault: Fault| self.faults & (1 << fault as u32) != 0;
        let allowed = match fault {
            Fault::Clock | Fault::Takeover => self.faults & (1 << 31) != 0,
            // Redis's clock is the witness of nodes that start, so a run never sets both clocks.
            Fault::PostgresClock => {
                self.faults & (1 << 31) == 0 || !(is_set(Fault::Clock) || is_set(Fault::Takeover))
            }
            _ => true,
        };
        allowed && is_set(fault)
    }
}

/// The bits of these faults, with the bit that allows clocks to be set.
fn bits(faults: &[Fault]) -> u32 {
    faults.iter().fold(1 << 31, |bits, fault| bits | 1 << *fault as u32)
}

fn pace_of(rng: &mut Rng, unsure: bool) -> i64 {
    if unsure {
        *rng.choice(&[100_000, 1_000_000, 4_000_000]).unwrap_or(&100_000)
    } else {
        *rng.choice(&[200, 2_000, 20_000, 100_000]).unwrap_or(&2_000)
    }
}

fn limits_of(rng: &mut Rng, limits: usize, files: usize, climate: &Climate) -> Vec<String> {
    let mut texts = vec![String::new(); files];
    let mut paced = false;
    for nth in 0..limits {
        let algorithm = loop {
            let algorithm = *rng.choice(climate.algorithms).unwrap();
            // The slots of two paced limits seldom meet, so a plan has one paced limit at most.
            if algorithm != TestAlgorithm::Paced || !paced {
                break algorithm;
            }
        };
        paced |= algorithm == TestAlgorithm::Paced;
        let per_ms = *rng.choice(climate.per_ms).unwrap();
        let lateness_ms = (per_ms * *rng.choice(climate.lateness).unwrap() / 100).max(10);
        let ahead_ms = rng.u64(0..=50);
        let (fewest, most) = climate.permits.unwrap_or((1, 4));
        let permits = rng.u32(fewest..=most) + if per_ms > 10_000 { 2 } else { 0 };
        for (file, text) in texts.iter_mut().enumerate() {
            let permits = if file == 0 { permits } else { rng.u32(1..=6) };
            let _ = write!(
                text,
                "[limit.l{nth}]\nalgorithm = \"{}\"\npermits = {permits}\nper = \"{per_ms}ms\"\nlateness = \"{lateness_ms}ms\"\nahead = \"{ahead_ms}ms\"\n",
                algorithm.name()
            );
            if algorithm.has_burst() {
                let _ = writeln!(text, "burst = {}", rng.u32(1..=3));
            }
            if algorithm == TestAlgorithm::SlidingWindow {
                let _ = writeln!(text, "segments = {}", *rng.choice(&[1, 2, 5, 10]).unwrap());
            }
        }
    }
    texts
}

/// The section of each channel: the part that is the same in all files, and its policies.
struct Sections(Vec<(String, String)>);

impl Sections {
    fn concat(&self) -> String {
        self.0.iter().flat_map(|(same, policies)| [same.as_str(), policies.as_str()]).collect()
    }

    fn with_other_policies(
        &self,
        rng: &mut Rng,
        limits: usize,
        unsure: bool,
        climate: &Climate,
        other: bool,
    ) -> String {
        let mut text = String::new();
        for (same, policies) in &self.0 {
            text.push_str(same);
            text.push_str(&if other { policies_of(rng, limits, unsure, climate) } else { policies.clone() });
        }
        text
    }
}

fn channels_of(rng: &mut Rng, channels: usize, limits: usize, unsure: bool, climate: &Climate) -> Sections {
    let mut sections = Vec::new();
    for nth in 0..channels {
        let mut text = String::new();
        let named: Vec<String> =
            (0..limits).filter(|_| nth == 0 || rng.bool()).map(|limit| format!("\"l{limit}\"")).collect();
        let _ = write!(
            text,
            "[channel.c{nth}]\nendpoint = \"http://127.0.0.1:9/\"\nlimits = [{}]\ntimeout = \"{}ms\"\nconnect_timeout = \"1s\"\nmax_in_flight = {}\nadaptive = false\nretry = {{ sends = 3 }}\n",
            named.join(", "),
            rng.choice(&[1_000, 4_000]).unwrap(),
            if climate.busy { 6 } else { rng.u32(1..=4) },
        );
        sections.push((text, policies_of(rng, limits, unsure, climate)));
    }
    Sections(sections)
}

fn policies_of(rng: &mut Rng, limits: usize, unsure: bool, climate: &Climate) -> String {
    let mut text = String::new();
    let ways: &[&str] =
        if unsure { &["inquire", "inquire", "resend"] } else { &["review", "resend", "inquire"] };
    let on_unknown = climate.on_unknown.unwrap_or_else(|| *rng.choice(ways).unwrap());
    if on_unknown == "inquire" || rng.bool() {
        let _ = writeln!(text, "{}", inquiry_of(rng, limits));
    }
    if on_unknown == "inquire" {
        text.push_str("on_unknown = \"inquire\"\n");
    } else if on_unknown == "resend" {
        // Longer than a lease, or it would never be used. Longer than a request may be on its way.
        let retention = rng.choice(&[40, 60, 120]).unwrap();
        let _ = writeln!(text, "on_unknown = \"resend\"\nkey_retention = \"{retention}s\"");
    }
    text
}

fn inquiry_of(rng: &mut Rng, limits: usize) -> String {
    let has_own = limits > 0 && rng.u8(0..3) == 0;
    let own = has_own.then(|| format!(", limits = [\"l{}\"]", rng.usize(0..limits)));
    let own = own.unwrap_or_default();
    // The grace must be longer than the bank may be slow.
    let grace = rng.choice(&[41, 60]).unwrap();
    let is_final = rng.bool();
    format!(
        "inquiry = {{ url = \"http://127.0.0.1:9/{{request_id}}\", not_found_is_final = {is_final}, grace = \"{grace}s\"{own} }}"
    )
}

pub fn read(text: &str) -> Vec<Arc<Channel>> {
    // Nothing connects to these addresses.
    let text = format!(
        "[postgres]\nurl = \"postgres://a@127.0.0.1/b\"\n[redis]\nurl = \"redis://127.0.0.1\"\n{text}"
    );
    let config =
        Config::parse(&text, "sim.toml", &|_| None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    config.channels.into_values().collect()
}

//! The channels of the torture run, one or more for each policy: their text in the nodes' files, and the behaviour
//! that their banks promise.

use std::path::Path;
use std::time::Duration;

use playground::Distance;
use playground::rule;

/// A channel of the torture run.
#[derive(Debug)]
pub struct Channel {
    pub name: &'static str,
    /// The limits of its sends; none for a channel without a limit.
    pub limits: &'static [&'static str],
    pub on_unknown: OnUnknown,
    pub inquiry: Option<Inquiry>,
    pub way: Way,
    /// How many refunds the producers keep waiting in it.
    pub waiting: u64,
    /// Whether a hand moves it to the second bank and back.
    pub moves: bool,
}

/// Suffix of a channel's name at the second bank, so that each request shows its bank.
pub const AWAY: &str = "-away";

/// The link to a channel's bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Plain,
    Tls,
    /// By TLS, through a link with [`DISTANCE`].
    Far,
}

/// A round trip of 40 to 80 ms, and three round trips to set up a connection.
pub const DISTANCE: Distance = Distance {
    set_up: Duration::from_millis(80),
    there: Duration::from_millis(20),
    back: Duration::from_millis(20),
    jitter: Duration::from_millis(20),
};

/// The limit by days of a time zone.
pub const DAY: &str = "day";

/// How many forwarders lead to each bank. Channels share them.
pub const DOORS: usize = 4;
/// More refunds than a bucket holds.
const MANY: u64 = 150;
/// More refunds than two limits let through in one of their windows, and few enough to be sent within some seconds.
const SOME: u64 = 40;
/// Refunds that a slow limit sends within some seconds.
const FEW: u64 = 6;

/// The channel's policy for a refund that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    Review,
    Inquire,
    Resend { key_retention: Duration },
}

/// The channel's settings for inquiries.
#[derive(Debug)]
pub struct Inquiry {
    pub not_found_is_final: bool,
    pub grace: Duration,
    /// The limits of inquiries; none for the channel's own limits.
    pub limits: &'static [&'static str],
}

/// How long a node waits for an answer of the bank, in microseconds, as the files say.
pub const TIMEOUT_US: i64 = 2_000_000;

/// Settings of every channel: retries and probes come soon and leases are short, so that a short run sees many of each.
const QUICK: &str = "lease = \"8s\"\ncool_down = \"500ms\"\nretry = { base = \"200ms\", cap = \"2s\", sends = 100 }\nbreaker = { probe = \"1s\" }\n";

const fn shown(name: &'static str, limits: &'static [&'static str]) -> Channel {
    Channel { name, limits, ..FREE }
}

const FREE: Channel = Channel {
    name: "free",
    limits: &[],
    on_unknown: OnUnknown::Review,
    inquiry: None,
    way: Way::Plain,
    waiting: MANY,
    moves: false,
};

const fn asks(not_found_is_final: bool, grace_s: u64, limits: &'static [&'static str]) -> Inquiry {
    Inquiry { not_found_is_final, grace: Duration::from_secs(grace_s), limits }
}

const fn resends(key_retention_s: u64) -> OnUnknown {
    OnUnknown::Resend { key_retention: Duration::from_secs(key_retention_s) }
}

/// All channels. The first inquiry comes after 10 s, so some inquiries come before their grace is over.
pub const CHANNELS: &[Channel] = &[
    Channel { way: Way::Tls, ..shown("fixed", &["fixed"]) },
    shown("paced", &["paced"]),
    Channel { way: Way::Far, ..shown("log", &["log"]) },
    shown("window", &["window"]),
    shown("bucket", &["bucket"]),
    shown("twin-a", &["twins"]),
    shown("twin-b", &["twins"]),
    // So slow that a permit for the test caller opens long after it was granted.
    Channel { waiting: FEW, ..shown("slow", &["slow"]) },
    Channel { waiting: FEW, way: Way::Tls, ..shown("slower", &["slower"]) },
    FREE,
    Channel {
        name: "asked",
        limits: &["asked"],
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 14, &[])),
        way: Way::Far,
        ..FREE
    },
    Channel {
        name: "asked-apart",
        limits: &["asked-apart"],
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 8, &["asks"])),
        ..FREE
    },
    Channel {
        name: "asked-in-vain",
        limits: &["asked-in-vain"],
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(false, 5, &[])),
        ..FREE
    },
    // Without a limit, too: as many requests at a time as their slots allow.
    Channel {
        name: "free-asked",
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 11, &[])),
        waiting: FEW,
        ..FREE
    },
    Channel { name: "free-again", on_unknown: resends(20), way: Way::Tls, waiting: FEW, ..FREE },
    Channel { name: "again", limits: &["again"], on_unknown: resends(20), ..FREE },
    Channel {
        name: "again-asked",
        limits: &["again-asked"],
        on_unknown: resends(16),
        inquiry: Some(asks(true, 12, &[])),
        way: Way::Tls,
        ..FREE
    },
    Channel {
        name: "moved",
        limits: &["moved"],
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 9, &[])),
        moves: true,
        ..FREE
    },
    Channel { name: "moved-again", limits: &["moved-again"], on_unknown: resends(20), moves: true, ..FREE },
    // Both limits bind: that of the second when a window begins, and that of the window before it ends.
    Channel { waiting: SOME, ..shown("pair", &["pair-second", "pair-window"]) },
    // Three shares for four nodes, so that a node waits for the share of another one.
    Channel {
        name: "shares",
        limits: &["shares"],
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 8, &[])),
        waiting: SOME,
        ..FREE
    },
    Channel { waiting: FEW, way: Way::Tls, ..shown("shares-beside", &["beside-shares", "beside-redis"]) },
    // Its limit is used up early. Whatever fails afterwards, nothing more may be sent on that day.
    Channel { waiting: FEW, ..shown("day", &[DAY]) },
];

/// The channel of this name, at the first or the second bank.
pub fn named(name: &str) -> Option<&'static Channel> {
    let name = name.strip_suffix(AWAY).unwrap_or(name);
    CHANNELS.iter().find(|channel| channel.name == name)
}

/// Names of limits as in a list of a configuration file.
fn quoted(limits: &[&str]) -> String {
    limits.iter().map(|limit| format!("\"{limit}\"")).collect::<Vec<_>>().join(", ")
}

impl Inquiry {
    fn key(&self, channel: &str) -> String {
        let Inquiry { not_found_is_final, grace, limits } = self;
        let limits = match limits {
            [] => String::new(),
            limits => format!(", limits = [{}]", quoted(limits)),
        };
        // Where "not found" is final, the bank's own text tells it from the JSON of a gateway.
        let own = ", not_found = { pointer = \"/error\", equals = \"not found\" }";
        let own = if *not_found_is_final { own } else { "" };
        format!(
            "inquiry = {{ url = \"http://{{bank}}/{channel}/refunds/{{request_id}}\", \
             not_found_is_final = {not_found_is_final}, grace = \"{}s\"{limits}{own} }}\n",
            grace.as_secs()
        )
    }
}

impl Channel {
    /// Whether people move refunds from and to it. Its bank is naive, and it is fast enough for what others leave to it.
    pub fn swaps(&self) -> bool {
        self.on_unknown == OnUnknown::Review && self.waiting == MANY
    }

    /// The channel's section of a node's file. All nodes use the same link, because refundd knows a bank by its
    /// address. `free_slots` are the slots of a channel without a limit.
    pub fn section(&self, ca_file: &Path, is_away: bool, free_slots: u32) -> String {
        let mut base = rule::channel(self.name, self.name)
            .replace(&format!("[\"{}\"]", self.name), &format!("[{}]", quoted(self.limits)));
        if self.limits.is_empty() {
            base = base.replace("max_in_flight = 60", &format!("max_in_flight = {free_slots}"));
        }
        let policy = match self.on_unknown {
            OnUnknown::Review => String::new(),
            OnUnknown::Inquire => "on_unknown = \"inquire\"\n".to_owned(),
            OnUnknown::Resend { key_retention } => {
                format!("on_unknown = \"resend\"\nkey_retention = \"{}s\"\n", key_retention.as_secs())
            }
        };
        let inquiry = self.inquiry.as_ref().map(|inquiry| inquiry.key(self.name)).unwrap_or_default();
        let section = [base.as_str(), QUICK, &policy, &inquiry].concat();
        let door = CHANNELS.iter().position(|channel| channel.name == self.name).unwrap_or(0) % DOORS;
        if is_away {
            let (home, away) =
                (format!("{{bank}}/{}/", self.name), format!("{{second-{door}}}/{}{AWAY}/", self.name));
            return section.replace(&home, &away);
        }
        let bank = match self.way {
            Way::Plain => return section.replace("{bank}", &format!("{{near-{door}}}")),
            Way::Tls => format!("https://{{near-{door}}}"),
            Way::Far => format!("https://{{far-{door}}}"),
        };
        format!("{}ca_file = \"{}\"\n", section.replace("http://{bank}", &bank), ca_file.display())
    }

    /// The limits under which inquiries are made.
    pub fn inquiry_limits(&self) -> &'static [&'static str] {
        match &self.inquiry {
            Some(Inquiry { limits: [], .. }) | None => self.limits,
            Some(inquiry) => inquiry.limits,
        }
    }

    /// Whether refunds may be left in it because its limit is used up for the day.
    pub fn may_run_out(&self) -> bool {
        self.limits.contains(&DAY)
    }

    /// Whether it has refunds to send and permits at nearly all times. So the time to its next request says how long a
    /// fault stopped it.
    pub fn is_steady(&self) -> bool {
        self.waiting == MANY && !self.limits.is_empty()
    }

    /// How long after a send "not found" proves that the bank did not execute it; `None` if it never proves that.
    pub fn final_after(&self) -> Option<Duration> {
        self.inquiry.as_ref().filter(|inquiry| inquiry.not_found_is_final).map(|inquiry| inquiry.grace)
    }

    /// How long after a send the bank may still execute it.
    pub fn latest(&self) -> Duration {
        self.final_after()
            .map_or(Duration::from_secs(6), |grace| grace.saturating_sub(Duration::from_secs(1)))
    }
}

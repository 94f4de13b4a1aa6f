//! The channels under torture, one or more for each policy, as the nodes' files have them and as their
//! banks were told.

use std::path::Path;
use std::time::Duration;

use playground::Distance;
use playground::rule;

#[derive(Debug)]
pub struct Channel {
    pub name: &'static str,
    /// What its refunds count under; `None` for the one that is so much for speed.
    pub limit: Option<&'static str>,
    pub on_unknown: OnUnknown,
    pub inquiry: Option<Inquiry>,
    pub way: Way,
    /// So many refunds are to wait in it.
    pub waiting: u64,
    /// It goes to the second bank and back while it is at work.
    pub moves: bool,
}

/// The second bank calls a channel by its name and this, so that each request tells where it was made.
pub const AWAY: &str = "-away";

/// How its bank is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Plain,
    Tls,
    /// By TLS, through a link with [`DISTANCE`].
    Far,
}

/// A round trip of 40 to 80 ms, and three of them to set a connection up.
pub const DISTANCE: Distance = Distance {
    set_up: Duration::from_millis(80),
    there: Duration::from_millis(20),
    back: Duration::from_millis(20),
    jitter: Duration::from_millis(20),
};

/// Channels share so many ways to each bank.
pub const DOORS: usize = 4;
/// More than a line holds.
const MANY: u64 = 150;
/// What a slow limit lets go within some seconds.
const FEW: u64 = 6;

/// What is done about a refund that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    Review,
    Inquire,
    Resend { key_retention: Duration },
}

/// How a bank is asked.
#[derive(Debug)]
pub struct Inquiry {
    pub not_found_is_final: bool,
    pub grace: Duration,
    /// Where inquiries count; `None` for the channel's own limit.
    pub limit: Option<&'static str>,
}

/// How long a request is waited for; longer than that nobody waits for a bank.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// What every channel has beside its endpoint and its limits: a bank that is asked again soon, and leases
/// that are over soon, so that a short run sees many.
const QUICK: &str =
    "lease = \"8s\"\ncool_down = \"500ms\"\nretry = { base = \"200ms\", cap = \"2s\", sends = 100 }\n";

const fn shown(name: &'static str, limit: &'static str) -> Channel {
    Channel { name, limit: Some(limit), ..FREE }
}

const FREE: Channel = Channel {
    name: "free",
    limit: None,
    on_unknown: OnUnknown::Review,
    inquiry: None,
    way: Way::Plain,
    waiting: MANY,
    moves: false,
};

const fn asks(not_found_is_final: bool, grace_s: u64, limit: Option<&'static str>) -> Inquiry {
    Inquiry { not_found_is_final, grace: Duration::from_secs(grace_s), limit }
}

const fn resends(key_retention_s: u64) -> OnUnknown {
    OnUnknown::Resend { key_retention: Duration::from_secs(key_retention_s) }
}

/// All of them. The first inquiry comes after 10 s, so that some come before their grace is over.
pub const CHANNELS: &[Channel] = &[
    Channel { way: Way::Tls, ..shown("fixed", "fixed") },
    shown("paced", "paced"),
    Channel { way: Way::Far, ..shown("log", "log") },
    shown("window", "window"),
    shown("bucket", "bucket"),
    shown("twin-a", "twins"),
    shown("twin-b", "twins"),
    // Slow enough that a permit granted to another service is opened long after it was granted.
    Channel { waiting: FEW, ..shown("slow", "slow") },
    Channel { waiting: FEW, way: Way::Tls, ..shown("slower", "slower") },
    FREE,
    Channel {
        name: "asked",
        limit: Some("asked"),
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 14, None)),
        way: Way::Far,
        ..FREE
    },
    Channel {
        name: "asked-apart",
        limit: Some("asked-apart"),
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 8, Some("asks"))),
        ..FREE
    },
    Channel {
        name: "asked-in-vain",
        limit: Some("asked-in-vain"),
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(false, 5, None)),
        ..FREE
    },
    Channel { name: "again", limit: Some("again"), on_unknown: resends(20), ..FREE },
    Channel {
        name: "again-asked",
        limit: Some("again-asked"),
        on_unknown: resends(16),
        inquiry: Some(asks(true, 12, None)),
        way: Way::Tls,
        ..FREE
    },
    Channel {
        name: "moved",
        limit: Some("moved"),
        on_unknown: OnUnknown::Inquire,
        inquiry: Some(asks(true, 9, None)),
        moves: true,
        ..FREE
    },
    Channel { name: "moved-again", limit: Some("moved-again"), on_unknown: resends(20), moves: true, ..FREE },
];

/// The channel of this name, at whichever bank.
pub fn named(name: &str) -> Option<&'static Channel> {
    let name = name.strip_suffix(AWAY).unwrap_or(name);
    CHANNELS.iter().find(|channel| channel.name == name)
}

impl Inquiry {
    fn key(&self, channel: &str) -> String {
        let Inquiry { not_found_is_final, grace, limit } = self;
        let limits = limit.map(|limit| format!(", limits = [\"{limit}\"]")).unwrap_or_default();
        format!(
            "inquiry = {{ url = \"http://{{bank}}/{channel}/refunds/{{request_id}}\", \
             not_found_is_final = {not_found_is_final}, grace = \"{}s\"{limits} }}\n",
            grace.as_secs()
        )
    }
}

impl Channel {
    /// As it stands in a node's file; the way is one for all nodes, since a bank is known by its address.
    pub fn section(&self, ca_file: &Path, is_away: bool) -> String {
        let base = match self.limit {
            Some(limit) => rule::channel(self.name, limit),
            None => rule::channel(self.name, self.name)
                .replace(&format!("[\"{}\"]", self.name), "[]")
                .replace("max_in_flight = 60", "max_in_flight = 4"),
        };
        let policy = match self.on_unknown {
            OnUnknown::Review => String::new(),
            OnUnknown::Inquire => "on_unknown = \"inquire\"\n".to_owned(),
            OnUnknown::Resend { key_retention } => {
                format!("on_unknown = \"resend\"\nkey_retention = \"{}s\"\n", key_retention.as_secs())
            }
        };
        let asked = self.inquiry.as_ref().map(|inquiry| inquiry.key(self.name)).unwrap_or_default();
        let section = [base.as_str(), QUICK, &policy, &asked].concat();
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

    /// Where inquiries count.
    pub fn asked_under(&self) -> Option<&'static str> {
        self.inquiry.as_ref().and_then(|inquiry| inquiry.limit).or(self.limit)
    }

    /// From when on after a send "not found" proves that it was not executed; `None` if it never does.
    pub fn final_after(&self) -> Option<Duration> {
        self.inquiry.as_ref().filter(|inquiry| inquiry.not_found_is_final).map(|inquiry| inquiry.grace)
    }

    /// How late the bank may execute what it was sent.
    pub fn latest(&self) -> Duration {
        self.final_after()
            .map_or(Duration::from_secs(6), |grace| grace.saturating_sub(Duration::from_secs(1)))
    }
}

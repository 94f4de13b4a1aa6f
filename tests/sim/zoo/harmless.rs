//! Mistakes that break no property, because another check stands behind each.

use crate::patch::Patch;

/// Claims do not check the rule that Postgres knows. That check makes most mistakes in the scripts harmless. So each
/// mistake is played without it, and must be caught where it is made.
pub const UNCHECKED: Patch = &[("and (select keeps_rules from checked)", "and true")];
/// The same for the count after the commit.
pub const UNCOUNTED: Patch =
    &[("select refundd.spent_permits_keep_rules(", "select true or refundd.spent_permits_keep_rules(")];

pub const STATEMENTS: &[(&str, Patch)] = &[
    ("claims do not check the rule that Postgres knows", UNCHECKED),
    ("nodes do not count the ledger after a claim", UNCOUNTED),
    (
        "an inquiry's number does not matter when it settles",
        &[("r.lease_epoch = :epoch and r.inquiries = :number", "r.lease_epoch = :epoch")],
    ),
    (
        "nothing is planned for what lapsed",
        &[("then now() + interval '10 seconds' end", "then null::timestamptz end")],
    ),
    (
        "the claim and the settling leave the version to the trigger",
        &[
            ("set state = 'sending', version = r.version + 1,", "set state = 'sending',"),
            ("else t.next end, version = r.version + 1,", "else t.next end,"),
        ],
    ),
];

pub const SCRIPTS: &[(&str, Patch)] = &[
    (
        "ids stand in a bucket twice",
        &[("and not seen[id] and not redis.call(\"ZSCORE\", present, id)", "and not seen[id]")],
    ),
    (
        "ids leave a bucket before permits are checked",
        &[(
            "local limits, lost, nth = enter_all(6, 9, clock, now, tolerance)",
            "if now % 3 == 0 then redis.call(\"RPOP\", bucket, 1) return {EMPTY, now} end\nlocal limits, lost, nth = enter_all(6, 9, clock, now, tolerance)",
        )],
    ),
];

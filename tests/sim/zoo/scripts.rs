//! Mistakes in the scripts, each a text of the product and its replacement.

use crate::patch::Patch;

pub const ALL: &[(&str, Patch)] = &[
    (
        "a count is restored by a node whose time for it is over",
        &[("if ARGV[9] ~= \"\" and kept[5] and", "if false and")],
    ),
    (
        "each node has the same short time for a restore",
        &[("whole(math.min(2 * took, LONGEST_RESTORING))", "whole(RESTORING_FOR)")],
    ),
    (
        "a segment that overlaps the span is not counted",
        &[("segment - rule.segments) >= rule.permits", "segment - rule.segments + 1) >= rule.permits")],
    ),
    (
        "the count expires apart from the log",
        &[(
            "state.gone = total_at(state, now - rule.per - rule.lateness - FUTURE)",
            "state.gone = total_at(state, now - rule.per / 2)",
        )],
    ),
    (
        "a clock that was set forward makes spent permits look older",
        &[("if by > 0 then\n    local steps", "if false then\n    local steps")],
    ),
    (
        "no limit rests after a clock was set",
        &[(
            "limit.quiet = stepped and stepped + admit[limit.rule.algorithm].rest(limit.rule) + limit.ahead + LONGEST_LEAD_TIME or 0",
            "limit.quiet = 0",
        )],
    ),
    (
        "of several limits only the first is spent",
        &[(
            "for _, limit in ipairs(limits) do\n        admit[limit.rule.algorithm].save",
            "for _, limit in ipairs({limits[1]}) do\n        admit[limit.rule.algorithm].save",
        )],
    ),
    (
        "a window's permits may be used until its last moment",
        &[(
            "return start, math.min(over - rule.lateness, math.max(at, start) + LIFETIME), start",
            "return start, math.max(at, start) + LIFETIME, start",
        )],
    ),
    (
        "a token bucket gains its tokens without the lateness",
        &[(
            "rule.spacing = math.ceil((rule.per + rule.lateness) / rule.permits)",
            "rule.spacing = math.ceil(rule.per / rule.permits)",
        )],
    ),
    (
        "the counts of another Redis server are believed",
        &[(
            "return process .. (string.match(redis.call(\"INFO\", \"replication\"), \"master_replid:(%w+)\") or \"\")",
            "return \"the same\"",
        )],
    ),
    (
        "no limit rests after another server took over",
        &[
            ("if ledger.rest then", "if false then"),
            ("limit.quiet = stepped and stepped + admit", "limit.quiet = false and stepped + admit"),
        ],
    ),
    (
        "a node that forgets what it wasted forgets the stricter rule, too",
        &[("redis.call(\"HSET\", KEYS[1], \"rule\", kept[2], \"seen\", kept[3])", "")],
    ),
    (
        "a looser rule that was looked up long ago rules at once",
        &[("if overrules(old, natural(kept[4]) or 0, rule, now) then", "if false then")],
    ),
    (
        "the rule of a looser file counts at once",
        &[(
            "return is_stricter(old, proposed) and seen > now - SEEN_FOR",
            "return false and seen > now - SEEN_FOR",
        )],
    ),
];

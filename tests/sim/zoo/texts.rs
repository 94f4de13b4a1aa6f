//! Mistakes in the statements and in the scripts: each is a text of the product and its replacement. A parameter with a
//! name stands as in the product's text: `:node`.

use super::Patch;

pub const STATEMENTS: &[(&str, Patch)] = &[
    (
        "a lapsed lease goes straight back to ready",
        &[(
            "set state = 'unknown', reason = 'lease_lapsed: ' || late.lease_node || ' did not settle in time',",
            "set state = 'ready', reason = null,",
        )],
    ),
    (
        "the journal has no line for a lapsed lease",
        &[("made'\n          from moved", "made'\n          from moved where false")],
    ),
    (
        "settling does not name the lease",
        &[(
            "and r.lease_epoch = t.epoch and case when r.state = 'sending' then r.lease_node end = t.holder",
            "and r.state = 'sending'",
        )],
    ),
    (
        "settling moves a row in any state",
        &[("and r.lease_epoch = t.epoch and case when r.state = 'sending' then r.lease_node end = t.holder", "")],
    ),
    (
        "settling again writes the journal again",
        &[("where not :again or t.id", "where :again or not :again or t.id")],
    ),
    (
        "the claim also takes unknown refunds",
        &[("(r.state || '' = 'ready'", "(r.state in ('ready', 'unknown')")],
    ),
    (
        "the claim does not look at the pause",
        &[("(c.paused_at is null or c.pause_until <= now()) and (c.cool_until", "true and (c.cool_until")],
    ),
    (
        "the claim does not look at the cooling",
        &[(
            "(c.cool_until is null or c.cool_until <= now())\n           and not exists",
            "true and not exists",
        )],
    ),
    (
        "the claim does not look at the deadline",
        &[(
            "and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())\n       and (r.state",
            "and r.due_at <= now()\n       and (r.state",
        )],
    ),
    (
        "the claim does not look at the due time",
        &[("and r.due_at <= now() and (r.deadline_at is null", "and (r.deadline_at is null")],
    ),
    (
        "the claim does not raise the epoch",
        &[("lease_epoch = r.lease_epoch + 1", "lease_epoch = r.lease_epoch")],
    ),
    (
        "the claim writes no permits",
        &[
            ("join current on current.is_current\n", "join current on current.is_current and false\n"),
            (
                "select refund_id as id from spent group by refund_id having count(*) = :numbers_each",
                "select given.id from given cross join gate cross join timely cross join current where is_open and is_timely and is_current and place <= cardinality(:place::bigint[]) / :numbers_each",
            ),
        ],
    ),
    (
        "a permit that was spent before is accepted",
        &[(
            "select refund_id as id from spent group by refund_id having count(*) = :numbers_each",
            "select given.id from given cross join gate cross join timely cross join current where is_open and is_timely and is_current and place <= cardinality(:place::bigint[]) / :numbers_each",
        )],
    ),
    (
        "two claimable refunds share one permit",
        &[
            (
                "row_number() over (order by requested.nth) as place",
                "(row_number() over (order by requested.nth) + 1) / 2 as place",
            ),
            (
                "select refund_id as id from spent group by refund_id having count(*) = :numbers_each",
                "select given.id from given cross join gate cross join timely cross join current where is_open and is_timely and is_current and place <= cardinality(:place::bigint[]) / :numbers_each",
            ),
        ],
    ),
    (
        "one permit of several limits is enough",
        &[("having count(*) = :numbers_each", "having count(*) >= 1")],
    ),
    ("permits of an older generation are accepted", &[("and good.generation = g.generation", "")]),
    (
        "a Redis that forgot begins no new generation",
        &[("set generation = l.generation + 1, rule", "set generation = l.generation, rule")],
    ),
    (
        "a Redis that forgot is restored without the spent permits",
        &[(
            "where limit_name = :limit_name and window_start > timestamptz 'epoch' + (:from_us::bigint",
            "where false and limit_name = :limit_name and window_start > timestamptz 'epoch' + (:from_us::bigint",
        )],
    ),
    (
        "a lost claim is taken back by id alone",
        &[(
            "and r.state = 'sending' and r.lease_node = :holder",
            "and r.state = 'sending' and :holder <> ''",
        )],
    ),
    (
        "a lost claim is taken back by node, not by claim",
        &[(
            "and r.state = 'sending' and r.lease_node = :holder",
            "and r.state = 'sending' and split_part(r.lease_node, '/', 1) = split_part(:holder, '/', 1)",
        )],
    ),
    (
        "a refund that may have been sent can be cancelled",
        &[(
            "select * from refundd.cancel(:id, :seen, :why, :who, :channels, :never_sent)",
            "update refundd.refunds r set state = 'cancelled', version = r.version + 1, settled_at = now(), reason = 'cancelled by ' || :who || coalesce(:why, '')
              where r.id = any(:id) and r.state in ('ready', 'review') and (:seen::integer is null or r.version = :seen)
                and (:channels::text[] is null or r.channel = any(:channels)) and (not :never_sent or r.first_sent_at is null) returning r.*",
        )],
    ),
    (
        "the deadline fails a refund that may have been sent",
        &[(
            "where state = 'ready' and deadline_at <= least(",
            "where state in ('ready', 'unknown') and deadline_at <= least(",
        )],
    ),
    (
        "an unknown refund is never shown to a person",
        &[("where u.state = 'unknown'\n               and not (", "where false\n               and not (")],
    ),
    (
        "a refund is sent again after the bank forgot its key",
        &[(
            "refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, :resend_within_us * interval '1 microsecond', :most_sends, greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))",
            ":resend_within_us::bigint > 0 and :most_sends::integer > 0 and coalesce(:witnessed_us::bigint, 1) > 0",
        )],
    ),
    (
        "a refund is sent again where its bank knows no keys",
        &[(
            "refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, :resend_within_us * interval '1 microsecond', :most_sends, greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))",
            "coalesce(:resend_within_us::bigint, 1) > 0 and :most_sends::integer > 0 and coalesce(:witnessed_us::bigint, 1) > 0",
        )],
    ),
    (
        "an inquiry settles a refund that was sent again since",
        &[("r.state = :state and r.lease_epoch = :epoch and r.inquiries = :number", "r.state = :state")],
    ),
    (
        "an inquiry settles a refund in any state",
        &[(
            "where r.id = :id and r.state = :state and r.lease_epoch = :epoch and r.inquiries = :number",
            "where r.id = :id",
        )],
    ),
    (
        "an inquiry is leased without a permit in the ledger",
        &[(
            "where r.id = any(array(select id from covered)) and r.channel = :channel\n       and r.state || '' in ('unknown', 'accepted')",
            "where r.id = any(array(select id from claimable)) and r.channel = :channel\n       and r.state || '' in ('unknown', 'accepted')",
        )],
    ),
    (
        "an inquiry is leased before it is due",
        &[("in ('unknown', 'accepted') and r.inquire_at <= now()", "in ('unknown', 'accepted')")],
    ),
    (
        "the grace begins when the refund was saved",
        &[("interval '1 microsecond') - r.uncertain_at", "interval '1 microsecond') - r.created_at")],
    ),
    (
        "no inquiry follows a lapsed lease",
        &[
            (
                "inquire_at = case when c.inquires and c.on_unknown = 'inquire' then now() + interval '10 seconds' end",
                "inquire_at = null",
            ),
            ("where c.inquires and c.retired_at is null and u.state in", "where false and u.state in"),
            ("(c.inquires and (c.on_unknown <> 'review' or u.inquire_at is not null))", "c.inquires"),
        ],
    ),
    (
        "an inquiry goes to a bank at another address",
        &[
            ("and refundd.is_where_it_was_sent(r.sent_to, (select address from here), :channel, true)", ""),
            ("and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, true)", ""),
        ],
    ),
    (
        "a refund is sent again to another address",
        &[
            ("and refundd.is_where_it_was_sent(r.sent_to, (select address from here), :channel, false)", ""),
            ("and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, false)", ""),
        ],
    ),
    (
        "a refund that was sent to another address is never shown to a person",
        &[("c.address_since < now() - interval '1 minute'", "false")],
    ),
    (
        "a lost claim of a second send goes back to ready",
        &[(
            "set state = case when r.uncertain_at is null then 'ready' else 'unknown' end,\n           attempts = r.attempts - 1",
            "set state = 'ready',\n           attempts = r.attempts - 1",
        )],
    ),
    (
        "permits of an older generation are accepted for other services",
        &[(
            "join good on good.limit_name = p.limit_name and good.generation = p.generation\n     order by",
            "join good on good.limit_name = p.limit_name\n     order by",
        )],
    ),
    (
        "an acquired permit counts as over too early",
        &[(
            "case when caller is null then :lead_us::bigint else :furthest_us::bigint end",
            "least(:lead_us::bigint, :furthest_us::bigint)",
        )],
    ),
    (
        "a decision does not look at the version",
        &[(
            "refundd.decide(:id, :next, :why, :who, :seen, :not_executed)",
            "refundd.decide(:id, :next, :why, :who, (select d.version from refundd.refunds d where d.id = :id and :seen::integer is not null), :not_executed)",
        )],
    ),
    (
        "a refund that may have been executed is sent again without a confirmation",
        &[(
            "refundd.propose(:id, :next, :why, :who, :seen, :not_executed)",
            "refundd.propose(:id, :next, :why, :who, :seen, true or :not_executed::boolean)",
        )],
    ),
    (
        "a lease ends by Postgres's clock alone",
        &[("lease_until < least(now(), timestamptz", "lease_until < greatest(now(), timestamptz")],
    ),
    (
        "a step of Postgres's clock lengthens no lease",
        &[(
            "where r.state = 'sending' and s.step_by >",
            "where false and r.state = 'sending' and s.step_by >",
        )],
    ),
    (
        "a grace ends by Postgres's clock alone",
        &[(
            "epoch from least(now(), timestamptz 'epoch' + :witnessed_us",
            "epoch from greatest(now(), timestamptz 'epoch' + :witnessed_us",
        )],
    ),
    (
        "a step of Postgres's clock is part of a grace",
        &[("- refundd.stepped_forward(r.uncertain_at)) * 1000000", ") * 1000000")],
    ),
    (
        "a deadline passes by Postgres's clock alone",
        &[
            ("deadline_at <= least(now(), timestamptz", "deadline_at <= greatest(now(), timestamptz"),
            ("stepped_forward(created_at) <= least(now()", "stepped_forward(created_at) <= greatest(now()"),
        ],
    ),
    (
        "a step of Postgres's clock brings deadlines nearer",
        &[("deadline_at + refundd.stepped_forward(created_at) <= least", "deadline_at <= least")],
    ),
    (
        "a node that starts believes Postgres's clock",
        &[(
            "(select (extract(epoch from redis_ahead) * 1000000)::bigint from refundd.clock) as redis_ahead_us",
            "null::bigint as redis_ahead_us",
        )],
    ),
    (
        "the age of a key is measured by Postgres's clock alone",
        &[(
            "greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint",
            "least(now(), timestamptz 'epoch' + :witnessed_us::bigint",
        )],
    ),
    (
        "a step of Postgres's clock makes a key last longer",
        &[(
            ":witnessed_us::bigint * interval '1 microsecond'))\n",
            ":witnessed_us::bigint * interval '1 microsecond') - refundd.stepped_back(r.first_sent_at))\n",
        )],
    ),
    (
        "a node that was taken for dead does not bring its channels back",
        &[(
            "where channel = any(:channels::text[]) and retired_at is not null",
            "where false and channel = any(:channels::text[])",
        )],
    ),
];

pub const SCRIPTS: &[(&str, Patch)] = &[
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

/// Claims do not check the rule that Postgres knows. That check makes most mistakes in the scripts harmless. So each
/// mistake is played without it, and must be caught where it is made.
pub const UNCHECKED: Patch = &[("and (select keeps_rules from checked)", "and true")];
/// The same for the count after the commit.
pub const UNCOUNTED: Patch =
    &[("select refundd.spent_permits_keep_rules(", "select true or refundd.spent_permits_keep_rules(")];

pub const HARMLESS_STATEMENTS: &[(&str, Patch)] = &[
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

pub const HARMLESS_SCRIPTS: &[(&str, Patch)] = &[
    (
        "ids stand in a bucket twice",
        &[("and not seen[id] and not redis.call(\"ZSCORE\", present, id)", "and not seen[id]")],
    ),
    (
        "ids leave a bucket before permits are checked",
        &[(
            "local limits, lost, nth = enter_all(6, 7, clock, now, tolerance)",
            "if now % 3 == 0 then redis.call(\"RPOP\", bucket, 1) return {EMPTY, now} end\nlocal limits, lost, nth = enter_all(6, 7, clock, now, tolerance)",
        )],
    ),
];

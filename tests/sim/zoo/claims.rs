//! Mistakes in the statements about claims, leases, permits and nodes, each a text of the product and its replacement.

use crate::patch::Patch;

pub const ALL: &[(&str, Patch)] = &[
    (
        "a lapsed lease goes straight back to ready",
        &[(
            "set state = 'unknown', reason = 'lease_lapsed: ' || late.lease_node || ' did not settle in time' || case when r.reason ~ '^(claim_lost|said_paid): ' then '; before: ' || r.reason else '' end,",
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
        &[("and (not :again or t.id", "and (:again or not :again or t.id")],
    ),
    (
        "the claim also takes unknown refunds",
        &[("(r.state || '' = 'ready'", "(r.state in ('ready', 'unknown')")],
    ),
    (
        "the claim does not look at the pause",
        &[(
            "(c.paused_at is null or c.pause_until <= least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')) and (c.cool_until",
            "true and (c.cool_until",
        )],
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
            "and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))\n       and (r.state",
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
            "select c.* from (select t.seen, array_agg(t.id) as ids from unnest(:id::bigint[], :seen::integer[]) as t (id, seen) group by t.seen) g\n     cross join lateral refundd.cancel(g.ids, g.seen, :why, :who, :channels, :never_sent) c",
            "update refundd.refunds r set state = 'cancelled', version = r.version + 1, settled_at = now(), reason = 'cancelled by ' || :who || coalesce(:why, '')
               from unnest(:id::bigint[], :seen::integer[]) as t (id, seen)
              where r.id = t.id and r.state in ('ready', 'review') and (t.seen is null or r.version = t.seen)
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
        "a node that was taken for dead does not bring its channels back",
        &[(
            "where channel = any(:channels::text[]) and retired_at is not null",
            "where false and channel = any(:channels::text[])",
        )],
    ),
];

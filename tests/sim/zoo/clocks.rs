//! Mistakes in the statements that look at Postgres's clock.

use crate::patch::Patch;

pub const ALL: &[(&str, Patch)] = &[
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
            ":most_sends, greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint",
            ":most_sends, least(now(), timestamptz 'epoch' + :witnessed_us::bigint",
        )],
    ),
    (
        "a step of Postgres's clock makes a key last longer",
        &[(
            ":most_sends, greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))\n",
            ":most_sends, greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond') - refundd.stepped_back(r.first_sent_at))\n",
        )],
    ),
];

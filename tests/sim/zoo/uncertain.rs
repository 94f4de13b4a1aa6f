//! Mistakes in the statements about refunds that may have been executed: inquiries, resends, and what people decide.

use crate::patch::Patch;

pub const ALL: &[(&str, Patch)] = &[
    (
        "an unknown refund is never shown to a person",
        &[(
            "where c.retired_at is not null or c.on_unknown = 'review'",
            "where false and c.on_unknown = 'review'",
        )],
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
        &[
            ("r.state = :state and r.lease_epoch = :epoch and r.inquiries = :number", "r.state = :state"),
            (
                "and r.channel = :channel and (extract(epoch from r.uncertain_at) * 1000000)::bigint is not distinct from :uncertain_at_us::bigint",
                "and coalesce(:uncertain_at_us::bigint, 1) is not null",
            ),
        ],
    ),
    (
        "an inquiry settles a refund in any state",
        &[
            (
                "where r.id = :id and r.state = :state and r.lease_epoch = :epoch and r.inquiries = :number",
                "where r.id = :id",
            ),
            (
                "and r.channel = :channel and (extract(epoch from r.uncertain_at) * 1000000)::bigint is not distinct from :uncertain_at_us::bigint",
                "and coalesce(:uncertain_at_us::bigint, 1) is not null",
            ),
        ],
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
            ("where c.inquires and c.retired_at is null\n      limit $1", "where false\n      limit $1"),
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
];

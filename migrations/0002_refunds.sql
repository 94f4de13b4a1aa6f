-- The row is the truth: what is owed, to whom, through which channel, and how far it has come.
-- Producers write the first eight columns; the defaults make the row ready, and column privileges
-- keep them away from the rest (config/producer-role.sql).
create table refundd.refunds (
    id            bigint      not null generated always as identity,
    refund_ref    text        not null,
    channel       text        not null,
    payment_ref   text        not null,
    amount_minor  bigint      not null,
    currency      text        not null,
    payload       jsonb,
    due_at        timestamptz not null default now(),
    deadline_at   timestamptz,
    request_id    uuid        not null default gen_random_uuid(),
    state         text        not null default 'ready',
    attempts      integer     not null default 0,
    reason        text,
    lease_epoch   bigint      not null default 0,
    lease_node    text,
    lease_until   timestamptz,
    created_at    timestamptz not null default now(),
    settled_at    timestamptz,
    constraint refunds_pkey primary key (id),
    constraint refunds_ref_is_unique_for_ever unique (refund_ref),
    constraint refunds_channel_is_one_that_nodes_run foreign key (channel) references refundd.channels (channel),
    constraint refunds_ref_has_1_to_200_characters check (length(refund_ref) between 1 and 200),
    constraint refunds_payment_ref_has_1_to_200_characters check (length(payment_ref) between 1 and 200),
    constraint refunds_amount_is_positive check (amount_minor > 0),
    constraint refunds_currency_is_three_capitals check (currency ~ '^[A-Z]{3}$'),
    constraint refunds_payload_is_at_most_16_kib check (octet_length(payload::text) <= 16384),
    constraint refunds_state_is_known check (state in
        ('ready', 'sending', 'accepted', 'unknown', 'review', 'succeeded', 'failed', 'cancelled')),
    constraint refunds_leased_only_while_sending
        check ((state = 'sending') = (lease_until is not null) and (state = 'sending') = (lease_node is not null)),
    constraint refunds_settled_only_in_an_end_state
        check ((state in ('succeeded', 'failed', 'cancelled')) = (settled_at is not null)),
    constraint refunds_attempts_are_counted_up_from_zero check (attempts >= 0),
    -- Postgres knows infinity and the year 20000; RFC 3339, in which times are told, does not.
    constraint refunds_times_can_be_told check (
        due_at >= timestamptz '0001-01-01 00:00:00+00' and due_at < timestamptz '9999-01-01 00:00:00+00'
        and deadline_at >= timestamptz '0001-01-01 00:00:00+00' and deadline_at < timestamptz '9999-01-01 00:00:00+00')
);

comment on table refundd.refunds is 'One refund each: money owed back through one channel. Insert refund_ref, channel, payment_ref, amount_minor, currency and, if wanted, payload, due_at, deadline_at.';
comment on column refundd.refunds.id is 'Ours; stands in the bucket, in the body the bank gets and in every log line.';
comment on column refundd.refunds.refund_ref is 'The caller''s permanent name for this refund, unique for ever.';
comment on column refundd.refunds.channel is 'The channel it goes out through.';
comment on column refundd.refunds.payment_ref is 'The payment it gives back, as the bank knows it.';
comment on column refundd.refunds.amount_minor is 'In minor units of the currency (cents for EUR, yen for JPY).';
comment on column refundd.refunds.currency is 'ISO 4217 code.';
comment on column refundd.refunds.payload is 'Passed on to the channel as it is; at most 16 KiB as text.';
comment on column refundd.refunds.due_at is 'Not before this time; refundd moves it when a send is to be tried again.';
comment on column refundd.refunds.deadline_at is 'If it could not be sent by then it fails with reason deadline_passed; null is no deadline.';
comment on column refundd.refunds.request_id is 'The Idempotency-Key the bank sees, fixed when saved, the same on every attempt.';
comment on column refundd.refunds.state is 'ready, sending, accepted, unknown, review; at the end succeeded, failed or cancelled.';
comment on column refundd.refunds.attempts is 'Sends that counted; being told to wait, or handing a refund back unsent, does not.';
comment on column refundd.refunds.reason is 'Why it is in this state, where the state alone does not say.';
comment on column refundd.refunds.lease_epoch is 'One more for every lease; settling must name it.';
comment on column refundd.refunds.lease_node is 'Who holds the lease: the node, after # the process, after / the claim.';
comment on column refundd.refunds.lease_until is 'Past this, the refund counts as unknown.';
comment on column refundd.refunds.created_at is 'When it was saved.';
comment on column refundd.refunds.settled_at is 'When it reached an end state.';

create index refunds_ready on refundd.refunds (channel, due_at, id) where state = 'ready';
create index refunds_ready_with_a_deadline on refundd.refunds (deadline_at) where state = 'ready' and deadline_at is not null;
create index refunds_sending on refundd.refunds (lease_until) where state = 'sending';
create index refunds_unsettled on refundd.refunds (state, channel, id) where state in ('accepted', 'unknown', 'review');

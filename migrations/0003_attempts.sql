-- The journal: what each request to a bank came to, and what people decided. A row is written once,
-- when the attempt is over or given up, and never changed: an open attempt is the lease in refunds.
create table refundd.attempts (
    id           bigint      not null generated always as identity,
    refund_id    bigint      not null,
    channel      text        not null,
    kind         text        not null,
    number       integer     not null,
    lease_epoch  bigint      not null,
    node         text        not null,
    permit       text,
    started_at   timestamptz,
    finished_at  timestamptz not null default now(),
    outcome      text        not null,
    moved_to     text,
    status       smallint,
    code         text,
    message      text,
    constraint attempts_pkey primary key (id),
    constraint attempts_belong_to_a_refund foreign key (refund_id) references refundd.refunds (id),
    constraint attempts_kind_is_known check (kind in ('send', 'inquiry', 'manual')),
    constraint attempts_outcome_is_known check (outcome in
        ('succeeded', 'accepted', 'rejected', 'not_executed', 'unknown', 'review', 'decided')),
    constraint attempts_message_is_bounded check (length(message) <= 500)
);

comment on table refundd.attempts is 'Append-only evidence of every request to a bank and every decision of a person.';
comment on column refundd.attempts.id is 'In order of writing.';
comment on column refundd.attempts.refund_id is 'The refund.';
comment on column refundd.attempts.channel is 'Its channel, repeated here to count by.';
comment on column refundd.attempts.kind is 'send, inquiry, or manual: a person''s decision.';
comment on column refundd.attempts.number is 'The Refundd-Attempt header of a send; 0 for manual.';
comment on column refundd.attempts.lease_epoch is 'The lease it was made under.';
comment on column refundd.attempts.node is 'The process that made it, or the person who decided.';
comment on column refundd.attempts.permit is 'The permits it spent, as limit@window#ordinal, comma between.';
comment on column refundd.attempts.started_at is 'When its first byte was written; null if none was.';
comment on column refundd.attempts.finished_at is 'When the outcome was written down.';
comment on column refundd.attempts.outcome is 'What it came to.';
comment on column refundd.attempts.moved_to is 'The state the refund moved to; null when the answer came too late and moved nothing.';
comment on column refundd.attempts.status is 'The HTTP status, if there was one.';
comment on column refundd.attempts.code is 'Our short name for what happened.';
comment on column refundd.attempts.message is 'At most 500 characters for people, without account data.';

create index attempts_of_a_refund on refundd.attempts (refund_id);
create index attempts_by_time on refundd.attempts using brin (finished_at) with (pages_per_range = 32, autosummarize = on);

create function refundd.attempts_are_never_changed() returns trigger language plpgsql as $$
begin
    raise exception 'refundd.attempts is append-only: % is refused', lower(tg_op)
        using errcode = 'RD003', hint = 'Evidence is only ever added to.';
end $$;

create trigger attempts_are_never_changed before update or delete or truncate on refundd.attempts
    for each statement execute function refundd.attempts_are_never_changed();

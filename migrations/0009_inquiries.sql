-- What may have happened can be asked about, or sent again under the same key. All that this takes stands
-- in the row; what a channel can do stands in refundd.channels, so that recovery needs nobody's file.
-- Nothing here is needed by nodes that do not know it: every column is null or has a default.
alter table refundd.refunds
    add column uncertain_at  timestamptz,
    add column first_sent_at timestamptz,
    add column inquire_at    timestamptz,
    add column inquiries     integer not null default 0,
    add column bank_ref      text,
    add constraint refunds_ready_means_nothing_was_executed check (state <> 'ready' or uncertain_at is null) not valid,
    add constraint refunds_asked_about_only_while_unsettled
        check (inquire_at is null or state in ('unknown', 'accepted')) not valid,
    add constraint refunds_inquiries_are_counted_up_from_zero check (inquiries >= 0) not valid,
    add constraint refunds_bank_ref_has_1_to_200_characters check (length(bank_ref) between 1 and 200) not valid;

comment on column refundd.refunds.uncertain_at is 'While set, a send may have been executed that nobody heard of; since then. Null in ready; kept while it is sent again.';
comment on column refundd.refunds.first_sent_at is 'When it was first leased for a send of which bytes may have left: from then on the bank may remember the key.';
comment on column refundd.refunds.inquire_at is 'When the bank is asked next what became of it; null if that is not planned.';
comment on column refundd.refunds.inquiries is 'Inquiries leased so far; the number names an inquiry.';
comment on column refundd.refunds.bank_ref is 'The bank''s own reference, where the channel says where it stands in answers; belongs to one refund.';
comment on column refundd.attempts.number is 'The Refundd-Attempt header of a send; of an inquiry, which one it was; 0 for manual.';

-- Small: no refund that goes the plain way is ever in one of the first two.
create index refunds_to_inquire on refundd.refunds (channel, inquire_at, id) where inquire_at is not null;
create index refunds_not_asked_about on refundd.refunds (state, channel, due_at, id)
    where state in ('unknown', 'accepted') and inquire_at is null;
create unique index refunds_bank_ref_belongs_to_one_refund on refundd.refunds (channel, bank_ref) where bank_ref is not null;

alter table refundd.channels
    add column on_unknown    text     not null default 'review',
    add column inquires      boolean  not null default false,
    add column resend_within interval,
    add column most_sends    integer  not null default 12,
    add constraint channels_on_unknown_is_known check (on_unknown in ('review', 'inquire', 'resend')) not valid,
    add constraint channels_resend_within_a_time check ((on_unknown = 'resend') = (resend_within is not null)) not valid;

comment on column refundd.channels.on_unknown is 'What becomes of a refund that may have been executed: review, inquire or resend.';
comment on column refundd.channels.inquires is 'Whether the bank can be asked; accepted refunds are asked about whatever on_unknown says.';
comment on column refundd.channels.resend_within is 'How long after its first send a refund may be leased to be sent again: key_retention less one lease. Only with resend.';
comment on column refundd.channels.most_sends is 'After this many counted sends a refund is not sent again.';

-- Whether a refund that may have been executed may be sent again under the same key.
create function refundd.may_be_resent(
    first_sent_at timestamptz, attempts integer, deadline_at timestamptz, resend_within interval, most_sends integer
) returns boolean
    language sql stable parallel safe
return coalesce(first_sent_at + resend_within > now() and attempts < most_sends and (deadline_at is null or deadline_at > now()), false);

-- As before; and what may have happened is remembered and forgotten here, whoever moves the row.
create or replace function refundd.only_legal_moves() returns trigger language plpgsql as $$
begin
    if not refundd.move_is_legal(old.state, new.state) then
        raise exception 'refund % cannot move from % to %', old.id, old.state, new.state
            using errcode = 'RD002', hint = 'The legal moves are listed in refundd.move_is_legal.';
    end if;
    if new.state = 'ready' then
        if old.state = 'sending' and old.uncertain_at is not null then
            raise exception 'refund % may have been executed by an earlier send and cannot become ready', old.id
                using errcode = 'RD002', hint = 'What became of this send says nothing about the earlier one.';
        end if;
        new.uncertain_at := null;
    elsif new.state = 'unknown' then
        new.uncertain_at := clock_timestamp();
    end if;
    if new.state not in ('unknown', 'accepted') then
        new.inquire_at := null;
    end if;
    return new;
end $$;

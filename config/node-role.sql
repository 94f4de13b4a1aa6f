-- The role of nodes and of people who run `refundd` by hand, with the rights that they need and no more. The role may not
-- change the schema, delete or rewrite a refund, change rows of the journal, the ledger and the events, drop evidence that is younger
-- than refundd.retention says, move a refund that waits for a person other than by a decision that the journal keeps, or
-- loosen what refundd.second_person says.
--
--     psql -d payments -f config/node-role.sql
--
-- Run the script after every `refundd migrate`: as the role of that migration, if it may also create roles, or as a
-- superuser. You may run it any number of times, also while nodes run. The role then has exactly the rights below.
-- The script of one version refuses the schema of another one, and then changes nothing. After going back to an older version run no
-- script: the rights stay.
--
-- The role cannot log in. Give it to the role of the nodes' [postgres] url:
--
--     grant refundd_node to refundd_app;
--
-- The role belongs to the whole server. Where the server has a second database of refundd, members of the role have these rights
-- there, too, if they may connect. Every role may connect to a new database until its owner revokes that:
--
--     grant connect on database payments to refundd_app;      -- and to all others that use the database
--     revoke connect on database payments from public;
--
-- The script does not revoke it, because it does not know which other programs use the database.

\set ON_ERROR_STOP on

begin;

-- On Postgres 14 every role may create objects in the schema `public`. None of them is called here.
set local search_path = pg_catalog, pg_temp;

-- The script first takes all rights, and then gives those that it knows. On a newer schema nodes and producers would lack the rights on
-- what is new there, and triggers that call a new function would stop claims and saves.
do $$
declare
    -- The last migration that this script knows.
    own constant bigint := 94;
    applied bigint;
begin
    if to_regclass('refundd.migrations') is null then
        raise exception 'the database `%` has no schema of refundd', current_database()
            using hint = 'Nothing was changed. Name the database of refundd, or run `refundd migrate` first.';
    end if;
    select coalesce(max(version), 0) into applied from refundd.migrations where success;
    if applied > own then
        raise exception 'the schema is newer (%) than this script (%)', applied, own
            using hint = 'Nothing was changed: the rights of the newer version stay in force, also for older nodes and producers. '
                         'To give them again, run the file of the newer version.';
    elsif applied < own then
        raise exception 'the schema is older (%) than this script (%)', applied, own
            using hint = 'Nothing was changed. Run `refundd migrate` of this version first, and then this script again.';
    end if;
end $$;

-- Roles belong to the whole server, so the role may exist already, made for another database.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'refundd_node') then
        create role refundd_node nologin noinherit;
        comment on role refundd_node is 'Nodes of refundd: may do what `refundd run` and its commands do, except `refundd migrate`.';
    end if;
end $$;

-- Start without rights. Revoking all on a table also revokes the grants on its columns.
revoke all on all tables in schema refundd from refundd_node;
revoke all on all sequences in schema refundd from refundd_node;
revoke all on all functions in schema refundd from refundd_node;
revoke all on schema refundd from refundd_node;

grant usage on schema refundd to refundd_node;
grant select on all tables in schema refundd to refundd_node;
-- To compare sequences with the ids in their tables. Inserts of ids need no right on them.
grant select on all sequences in schema refundd to refundd_node;

-- Functions by their names. Those with their owner's rights create and drop the days of the ledger and the months of the
-- journal, and drop events, as long as refundd.retention says, write decisions and proposals, move refunds to
-- another channel, seal the journal, lease the delivery of changes, and write what came of lost refunds. A new function needs a
-- line here. Triggers and these functions write refundd.events, so the role has no right to insert there.
grant execute on function refundd.approve, refundd.attempts_since, refundd.backlog_room, refundd.bounds_in_span, refundd.cancel, refundd.clocks_keep_rule, refundd.count_ended, refundd.counts, refundd.decide,
                          refundd.deliver, refundd.expire_proposals, refundd.feed_reach, refundd.forget_events, refundd.gaps_keep_rule, refundd.inquiry_is_kept, refundd.is_where_it_was_sent, refundd.journal_has_a_send, refundd.ledger_keeps_rules, refundd.lock_shares,
                          refundd.may_have_been_executed, refundd.move, refundd.move_is_legal, refundd.note_bank_ref, refundd.note_lost_refund, refundd.note_reach, refundd.openings_are_near, refundd.outcome_is_kept, refundd.own_rule_has_room,
                          refundd.permits_are_kept_for, refundd.permits_keep_rules, refundd.propose, refundd.recovery_moved,
                          refundd.refund_holds_card_number, refundd.reserve_share, refundd.rule_is_stricter, refundd.rule_most, refundd.rule_reach,
                          refundd.rule_shape, refundd.seal_journal, refundd.send_is_kept, refundd.slow_share, refundd.slow_steps,
                          refundd.spans, refundd.spans_keep_rule, refundd.spent_permits_keep_rules, refundd.stepped_back, refundd.stepped_forward,
                          refundd.transactions_under_way, refundd.turn_attempts, refundd.turn_permits,
                          refundd.was_said_paid, refundd.why_it_stays, refundd.windows_keep_rule, refundd.withdraw,
                          refundd.may_be_resent(timestamptz, integer, timestamptz, interval, integer),
                          refundd.may_be_resent(timestamptz, integer, timestamptz, interval, integer, timestamptz)
    to refundd_node;

-- A refund: the producer's columns may be inserted, the progress may be updated. Amount and payment are never updated.
grant insert (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at, traceparent)
    on refundd.refunds to refundd_node;
grant update (state, attempts, due_at, reason, lease_epoch, lease_node, lease_until, settled_at,
              uncertain_at, first_sent_at, inquire_at, inquiries, bank_ref, sent_to, version)
    on refundd.refunds to refundd_node;

-- Tables of evidence: rows may be added, never changed. Postgres itself writes when each row was added.
grant insert (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome, moved_to, status, code, message)
    on refundd.attempts to refundd_node;
grant insert (limit_name, window_start, ordinal, refund_id, node, caller) on refundd.permits to refundd_node;
grant insert (limit_name, rule, node) on refundd.limit_rules to refundd_node;
grant insert (above, node) on refundd.second_person to refundd_node;
grant insert (channel, endpoint, inquiry, published_by) on refundd.addresses to refundd_node;
grant insert (zone, day, begins_at, node) on refundd.zone_days to refundd_node;
grant insert (step, step_by, before, node, witness) on refundd.clock_steps to refundd_node;

grant insert, update on refundd.channels, refundd.suspensions, refundd.limits, refundd.ended, refundd.clock, refundd.share_locks to refundd_node;
grant update on refundd.ended_until to refundd_node;
grant insert, update, delete on refundd.nodes, refundd.limit_shares, refundd.share_rules to refundd_node;

commit;

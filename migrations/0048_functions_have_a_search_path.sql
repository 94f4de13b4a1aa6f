-- Functions without a search_path of their own look up operators by the path of the session that calls them. On Postgres 14 every
-- role may create objects in the schema `public`. A role that put an operator `=` there, and `public` before pg_catalog, could
-- make any move of a refund legal. Now each function has its own path, or a body that Postgres bound to its operators when the
-- function was made.
-- Four functions stay without one, because each call would cost a microsecond more: belongs_elsewhere, holds_card_number (two) and
-- is_iban. No role may call them. Functions and triggers with a path of their own do.

alter function refundd.a_new_pause_has_its_own_end set search_path = pg_catalog, pg_temp;
alter function refundd.addresses_are_never_changed set search_path = pg_catalog, pg_temp;
alter function refundd.attempts_are_never_changed set search_path = pg_catalog, pg_temp;
alter function refundd.channels_are_never_deleted set search_path = pg_catalog, pg_temp;
alter function refundd.count_ended set search_path = pg_catalog, pg_temp;
alter function refundd.counts set search_path = pg_catalog, pg_temp;
alter function refundd.events_are_only_added set search_path = pg_catalog, pg_temp;
alter function refundd.it_did_not_end set search_path = pg_catalog, pg_temp;
alter function refundd.only_a_decision_does_this set search_path = pg_catalog, pg_temp;
alter function refundd.only_legal_moves set search_path = pg_catalog, pg_temp;
alter function refundd.permits_are_never_changed set search_path = pg_catalog, pg_temp;
alter function refundd.proposals_only_end set search_path = pg_catalog, pg_temp;
alter function refundd.refunds_are_never_deleted set search_path = pg_catalog, pg_temp;
alter function refundd.seals_are_never_changed set search_path = pg_catalog, pg_temp;
alter function refundd.what_is_owed_never_changes set search_path = pg_catalog, pg_temp;
alter function refundd.what_is_ready_was_sent_nowhere set search_path = pg_catalog, pg_temp;

-- As before (migration 0006), with a bound body, so that Postgres still writes the table into the statement that asks.
create or replace function refundd.move_is_legal(old_state text, new_state text) returns boolean
    language sql immutable parallel safe
return (old_state, new_state) in (
    ('ready', 'sending'), ('ready', 'cancelled'), ('ready', 'failed'),
    ('sending', 'ready'), ('sending', 'accepted'), ('sending', 'unknown'), ('sending', 'review'),
    ('sending', 'succeeded'), ('sending', 'failed'),
    ('accepted', 'review'), ('accepted', 'succeeded'), ('accepted', 'failed'),
    ('unknown', 'ready'), ('unknown', 'sending'), ('unknown', 'accepted'), ('unknown', 'review'),
    ('unknown', 'succeeded'), ('unknown', 'failed'),
    ('review', 'ready'), ('review', 'succeeded'), ('review', 'failed'), ('review', 'cancelled'),
    ('failed', 'ready')
);

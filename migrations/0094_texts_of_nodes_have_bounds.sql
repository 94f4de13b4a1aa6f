-- The role of nodes could write texts of 200 MB, such as the reason of a pause, the name of a node, or a rule of a limit. Every node reads
-- some of them again and again, and needs that memory; triggers copy others into the events, from where nobody but time deletes them.
-- So they hurt also after the stolen password was changed. Only `reason` of a refund was cut (migration 0093).

-- Bounds for all texts that the role may write: 2,000 bytes for names, 10,000 for reasons and rules, 64 KiB for addresses and permits, and 16 MiB
-- for settings and for what a node says of its channels. refundd itself stays far below. Columns with a bound of their own need none
-- here, and Postgres bounds those in a primary key. No row is read for a constraint: each is `not valid`.
-- This migration locks all these tables: first those that a claim reads, then the refunds and the journal, so that no claim and
-- no settlement waits for it in a circle.
lock table refundd.addresses, refundd.channels, refundd.suspensions, refundd.limits, refundd.permits in access exclusive mode;
lock table refundd.refunds in share row exclusive mode;
lock table refundd.attempts in access exclusive mode;

-- Of a name that no node has, 500 characters stay. It is cut, and not refused: such a row from before stops no statement that moves many refunds.
create or replace function refundd.lease_nodes_are_cut() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.lease_node := left(new.lease_node, 500);
    return new;
end $$;

revoke execute on function refundd.lease_nodes_are_cut from public;

create or replace trigger refunds_lease_nodes_are_cut before update on refundd.refunds
    for each row when (octet_length(new.lease_node) > 2000)
    execute function refundd.lease_nodes_are_cut();

alter table refundd.attempts
    drop constraint if exists attempts_texts_are_bounded,
    add constraint attempts_texts_are_bounded check (
        octet_length(node) <= 2000 and octet_length(channel) <= 2000 and octet_length(permit) <= 65536
        and octet_length(moved_to) <= 2000 and octet_length(code) <= 2000) not valid;

alter table refundd.permits
    drop constraint if exists permits_texts_are_bounded,
    add constraint permits_texts_are_bounded check (octet_length(node) <= 2000 and octet_length(caller) <= 2000) not valid;

-- A row from before with a longer text would refuse every later change, also one of many rows. So what is there is cut before. No event has the
-- long text again: these triggers write what was before a change.
alter table refundd.channels disable trigger channels_changed_are_events;
alter table refundd.suspensions disable trigger suspensions_changed_are_events;
do $$
declare
    bounded record;
begin
    for bounded in
        select * from (values
            ('channels', 'endpoint', 65536), ('channels', 'published_by', 2000), ('channels', 'pause_reason', 10000), ('channels', 'paused_by', 2000),
            ('channels', 'cool_reason', 10000), ('channels', 'resumed_by', 2000), ('channels', 'resume_reason', 10000),
            ('channels', 'cooling_ended_by', 2000), ('channels', 'cooling_end_reason', 10000),
            ('suspensions', 'reason', 10000), ('suspensions', 'who', 2000), ('suspensions', 'kind', 2000), ('suspensions', 'probe_by', 2000),
            ('suspensions', 'ended_by', 2000), ('suspensions', 'end_reason', 10000),
            ('limits', 'adopted_by', 2000), ('limits', 'server', 2000), ('feed', 'delivered_by', 2000)
        ) as bounds (in_table, in_column, most)
    loop
        execute format('update refundd.%1$I set %2$I = left(%2$I, %3$s) where octet_length(%2$I) > %4$s',
                       bounded.in_table, bounded.in_column, bounded.most / 4, bounded.most);
    end loop;
end $$;
-- A node that runs the channel publishes its settings again.
update refundd.channels set settings = '{}' where octet_length(settings::text) > 16777216;
alter table refundd.channels enable trigger channels_changed_are_events;
alter table refundd.suspensions enable trigger suspensions_changed_are_events;

alter table refundd.channels
    drop constraint if exists channels_texts_are_bounded,
    add constraint channels_texts_are_bounded check (
        octet_length(endpoint) <= 65536 and pg_column_size(settings) <= 16777216 and octet_length(published_by) <= 2000
        and octet_length(pause_reason) <= 10000 and octet_length(paused_by) <= 2000 and octet_length(cool_reason) <= 10000
        and octet_length(resumed_by) <= 2000 and octet_length(resume_reason) <= 10000
        and octet_length(cooling_ended_by) <= 2000 and octet_length(cooling_end_reason) <= 10000) not valid;

alter table refundd.suspensions
    drop constraint if exists suspensions_texts_are_bounded,
    add constraint suspensions_texts_are_bounded check (
        octet_length(reason) <= 10000 and octet_length(who) <= 2000 and octet_length(kind) <= 2000 and octet_length(probe_by) <= 2000
        and octet_length(ended_by) <= 2000 and octet_length(end_reason) <= 10000) not valid;

alter table refundd.limits
    drop constraint if exists limits_texts_are_bounded,
    add constraint limits_texts_are_bounded check (
        octet_length(rule::text) <= 10000 and octet_length(adopted_by) <= 2000 and octet_length(server) <= 2000) not valid;

alter table refundd.limit_rules
    drop constraint if exists limit_rules_texts_are_bounded,
    add constraint limit_rules_texts_are_bounded check (octet_length(rule::text) <= 10000 and octet_length(node) <= 2000) not valid;

alter table refundd.limit_shares
    drop constraint if exists limit_shares_texts_are_bounded,
    add constraint limit_shares_texts_are_bounded check (octet_length(node) <= 2000) not valid;

-- Each node writes its row once a second. `pg_column_size` makes no text of a long column, and does not unpack one that stays. A new value has
-- its whole size, because checks come before Postgres packs it.
alter table refundd.nodes
    drop constraint if exists nodes_texts_are_bounded,
    add constraint nodes_texts_are_bounded check (
        octet_length(version) <= 2000 and octet_length(config_digest) <= 2000 and octet_length(bucket) <= 2000
        and pg_column_size(channels) <= 16777216 and pg_column_size(standing) <= 16777216 and pg_column_size(settings) <= 16777216) not valid;

alter table refundd.addresses
    drop constraint if exists addresses_texts_are_bounded,
    add constraint addresses_texts_are_bounded check (
        octet_length(channel) <= 2000 and octet_length(endpoint) <= 65536 and octet_length(inquiry) <= 65536
        and octet_length(published_by) <= 2000) not valid;

alter table refundd.second_person
    drop constraint if exists second_person_texts_are_bounded,
    add constraint second_person_texts_are_bounded check (octet_length(above::text) <= 65536 and octet_length(node) <= 2000) not valid;

alter table refundd.zone_days
    drop constraint if exists zone_days_texts_are_bounded,
    add constraint zone_days_texts_are_bounded check (octet_length(zone) <= 2000 and octet_length(node) <= 2000) not valid;

alter table refundd.clock_steps
    drop constraint if exists clock_steps_texts_are_bounded,
    add constraint clock_steps_texts_are_bounded check (octet_length(node) <= 2000) not valid;

alter table refundd.ended_until
    drop constraint if exists ended_until_texts_are_bounded,
    add constraint ended_until_texts_are_bounded check (octet_length(next_after::text) <= 1048576) not valid;

-- By refundd.deliver.
alter table refundd.feed
    drop constraint if exists feed_texts_are_bounded,
    add constraint feed_texts_are_bounded check (octet_length(delivered_by) <= 2000) not valid;

-- Functions with the owner's rights write events, too: refundd.note_reach and refundd.note_bank_ref took texts of any length.
create or replace function refundd.texts_of_events_are_cut() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.channel := left(new.channel, 63);
    new.who := left(new.who, 500);
    new.reason := left(new.reason, 2000);
    return new;
end $$;

revoke execute on function refundd.texts_of_events_are_cut from public;

create or replace trigger events_texts_are_cut before insert on refundd.events
    for each row when (octet_length(new.channel) > 2000 or octet_length(new.who) > 2000 or octet_length(new.reason) > 10000)
    execute function refundd.texts_of_events_are_cut();

-- As before (migration 0036), and no name and no reason is longer than the program's own by far. Proposals, decisions
-- and moves keep them.
create or replace function refundd.people_give_reasons(what text, why text, who text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(btrim(why), '') = '' or coalesce(btrim(who), '') = '' then
        raise exception '% names no %', what, case when coalesce(btrim(who), '') = '' then 'person' else 'reason' end
            using errcode = 'invalid_parameter_value', hint = 'The journal keeps who decided, and why.';
    end if;
    if octet_length(why) > 10000 or octet_length(who) > 2000 then
        raise exception '% has a % that is too long', what, case when octet_length(who) > 2000 then 'name' else 'reason' end
            using errcode = 'invalid_parameter_value', hint = 'Give a name of at most 2,000 bytes and a reason of at most 10,000.';
    end if;
end $$;

comment on function refundd.people_give_reasons is 'Refuses what people do without a name or without a reason, or with one that is too long.';

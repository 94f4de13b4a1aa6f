-- The journal was append-only by rights and triggers alone. The owner of the schema, and everybody who becomes the owner, could
-- change, delete or add a line, and no later look could show it. From now on each channel's lines stand in a chain of
-- seals: docs/decisions/0017-the-journal-is-sealed-in-chains.md.
--
-- Lines are sealed after their commit and never while they are written, so no commit waits for another one. The
-- migration changes no table that settling uses, and seals nothing: the leading node seals the lines that exist, too.
create table refundd.seals (
    channel   text        not null,
    number    bigint      not null,
    format    smallint    not null default 1,
    after_id  bigint      not null,
    to_id     bigint      not null,
    month     timestamptz not null,
    sealed_at timestamptz not null default now(),
    total     bigint      not null,
    previous  bytea,
    lines     bytea       not null,
    hash      bytea       not null,
    constraint seals_pkey primary key (channel, number),
    constraint seals_begin_at_one check ((number = 1) = (previous is null)),
    constraint seals_hold_whole_lines check (length(lines) > 0 and length(lines) % 48 = 0),
    constraint seals_are_of_a_known_format check (format = 1)
);

-- Digests do not compress. Postgres need not try.
alter table refundd.seals alter column lines set storage external;

comment on table refundd.seals is 'Append-only chains over the journal, one for each channel: what each line was when it was sealed. refundd.seal_journal() writes it.';
comment on column refundd.seals.channel is 'The channel whose lines these are.';
comment on column refundd.seals.number is 'The place in the chain of the channel: 1, 2, 3, ...';
comment on column refundd.seals.format is 'How lines and seals become bytes: docs/prove.md has the format.';
comment on column refundd.seals.after_id is 'The lines have ids above this; lines up to it were sealed before.';
comment on column refundd.seals.to_id is 'The lines have ids up to this; every line of the journal up to it is sealed now.';
comment on column refundd.seals.month is 'The beginning of the UTC month of the lines'' finished_at: a month of the journal is dropped whole.';
comment on column refundd.seals.sealed_at is 'When the lines were sealed, by Postgres''s clock.';
comment on column refundd.seals.total is 'How many lines this seal and all earlier ones of the channel hold.';
comment on column refundd.seals.previous is 'The hash of the seal before; null in the first one.';
comment on column refundd.seals.lines is '48 bytes for each line in the order of ids: id, refund_id (8 bytes each, highest byte first), and the SHA-256 of the line.';
comment on column refundd.seals.hash is 'SHA-256 of all other columns. It stands for this seal, and for all before it.';

-- `refundd prove --journal` reads in this order, beside the journal.
create index seals_by_line on refundd.seals (to_id);

create function refundd.seals_are_never_changed() returns trigger language plpgsql as $$
begin
    raise exception 'refundd.seals is append-only: % is refused', lower(tg_op)
        using errcode = 'RD003', hint = 'Evidence is only ever added to.';
end $$;

create trigger seals_are_never_changed before update or delete or truncate on refundd.seals
    for each statement execute function refundd.seals_are_never_changed();

create table refundd.sealing (
    is_the_only_row boolean not null default true,
    until_id        bigint  not null,
    seals           bigint  not null,
    next_id         bigint,
    next_after      text[],
    constraint sealing_pkey primary key (is_the_only_row),
    constraint sealing_is_one_row check (is_the_only_row),
    constraint sealing_waits_for_writers check ((next_id is null) = (next_after is null))
);

comment on table refundd.sealing is 'How far the journal is sealed. One row.';
comment on column refundd.sealing.is_the_only_row is 'Always true.';
comment on column refundd.sealing.until_id is 'Every line with an id up to this is sealed.';
comment on column refundd.sealing.seals is 'How many seals there are, so that a removed one is missed.';
comment on column refundd.sealing.next_id is 'Up to which id is sealed next; null if that is not chosen yet.';
comment on column refundd.sealing.next_after is 'The virtual ids of the transactions that have to be over before: each may still commit a line with an id up to next_id.';

insert into refundd.sealing (until_id, seals) values (0, 0);

-- The transactions that may have written a line and are not over. Each line gets its id under such a lock, and the lock stays
-- until the commit can be seen. A transaction that was prepared has no virtual id, and is named by its id.
create function refundd.journal_writers() returns text[]
    language sql volatile security definer set search_path = pg_catalog, pg_temp
return (select coalesce(array_agg(distinct case when l.pid is null then 'prepared' else l.virtualtransaction end), '{}')
          from pg_catalog.pg_locks l
         where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_catalog.pg_backend_pid()
           and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
           and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
           and l.relation in (select t.relid from pg_catalog.pg_partition_tree('refundd.attempts') t));

comment on function refundd.journal_writers is 'Virtual ids of the other transactions that hold a lock to write to the journal; `prepared` for prepared ones.';

-- Seals at most `most` lines. Ids are given before commits, so a line may appear after lines with higher ids. So sealing has two
-- steps, as counting has (migration 0017): note the last id and who may write, and seal once all of those are through.
-- The hashes are computed here from the rows, with the owner's rights, so no caller can choose one.
create function refundd.seal_journal(most integer, out sealed integer, out is_done boolean, out waits_for integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    at   refundd.sealing%rowtype;
    til  bigint;
    part record;
    head refundd.seals%rowtype;
begin
    -- record_send() writes texts as the client wants them. And an older snapshot would miss lines that are committed.
    if pg_client_encoding() <> 'UTF8' or current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the journal is sealed with client_encoding UTF8 and in a transaction that is read committed'
            using errcode = 'invalid_transaction_state', hint = 'Leave both settings at refundd''s own.';
    end if;
    sealed := 0;
    is_done := false;
    waits_for := 0;
    select * into at from refundd.sealing where is_the_only_row for update;
    if at.next_id is null then
        -- In this order: who has an id up to this one, and is not over, is among the writers.
        select s.last_value - case when s.is_called then 0 else 1 end into at.next_id from refundd.attempts_id_seq s;
        at.next_after := refundd.journal_writers();
    end if;
    if cardinality(at.next_after) > 0 then
        at.next_after := array(select unnest(at.next_after || '{prepared}') intersect select unnest(refundd.journal_writers()));
        waits_for := cardinality(at.next_after);
    end if;
    if waits_for = 0 then
        select max(l.id), count(*) into til, sealed
          from (select a.id from refundd.attempts a where a.id > at.until_id and a.id <= at.next_id order by a.id limit greatest(most, 1)) l;
        is_done := sealed < greatest(most, 1);
        if is_done then
            til := greatest(at.next_id, at.until_id);
        end if;
        for part in
            select a.channel, date_trunc('month', a.finished_at, 'UTC') as month,
                   string_agg(int8send(a.id) || int8send(a.refund_id) || sha256(record_send(row(
                       a.id, a.refund_id, a.channel, a.kind, a.number, a.lease_epoch, a.node, a.permit, a.started_at, a.finished_at,
                       a.outcome, a.moved_to, a.status, a.code, a.message))), ''::bytea order by a.id) as lines
              from refundd.attempts a where a.id > at.until_id and a.id <= til
             group by 1, 2 order by 1, 2
        loop
            select * into head from refundd.seals s where s.channel = part.channel order by s.number desc limit 1;
            head.previous := head.hash;
            head.channel := part.channel;
            head.number := coalesce(head.number, 0) + 1;
            head.format := 1;
            head.after_id := at.until_id;
            head.to_id := til;
            head.month := part.month;
            head.sealed_at := now();
            head.total := coalesce(head.total, 0) + length(part.lines) / 48;
            head.lines := part.lines;
            head.hash := sha256(record_send(row(
                head.format, head.channel, head.number, head.after_id, head.to_id, head.month, head.sealed_at, head.total, head.previous, head.lines)));
            insert into refundd.seals select head.*;
            at.seals := at.seals + 1;
        end loop;
        at.until_id := til;
        at.next_after := '{}';
        if is_done then
            at.next_id := null;
            at.next_after := null;
        end if;
    end if;
    update refundd.sealing set until_id = at.until_id, seals = at.seals, next_id = at.next_id, next_after = at.next_after where is_the_only_row;
end $$;

comment on function refundd.seal_journal is 'Seals up to `most` lines of the journal that were committed, in one chain for each channel. `waits_for`: so many transactions may still commit lines between. The leading node calls it.';

revoke execute on function refundd.seals_are_never_changed, refundd.journal_writers, refundd.seal_journal from public;

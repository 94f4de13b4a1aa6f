-- How many refunds ended, by channel and state, without reading all that ever did: what ended before `counted_until`
-- is kept as a number, and a census adds what ended since. Nothing on the way of a refund writes here; the leading
-- node moves the time on every now and then.
--
-- Making the index and counting for the first time read the whole table once (a second for some three million
-- rows), while nothing is written to it.
create index refunds_by_time_of_end on refundd.refunds using brin (settled_at) with (pages_per_range = 32, autosummarize = on);

create table refundd.ended (
    channel text   not null,
    state   text   not null,
    n       bigint not null,
    constraint ended_pkey primary key (channel, state),
    constraint ended_counts_end_states check (state in ('succeeded', 'failed', 'cancelled'))
);

create table refundd.ended_until (
    is_the_only_row boolean     not null default true,
    counted_until   timestamptz not null,
    constraint ended_until_pkey primary key (is_the_only_row),
    constraint ended_until_is_one_row check (is_the_only_row)
);

comment on table refundd.ended is 'Refunds whose settled_at lies before ended_until.counted_until, counted by channel and state.';
comment on column refundd.ended.channel is 'The channel they went out through.';
comment on column refundd.ended.state is 'succeeded, failed or cancelled.';
comment on column refundd.ended.n is 'How many.';
comment on table refundd.ended_until is 'One row: up to when refundd.ended has counted.';
comment on column refundd.ended_until.is_the_only_row is 'Always true.';
comment on column refundd.ended_until.counted_until is 'What ended at this time or later is not in refundd.ended.';

-- Moves the time on, two minutes behind: by then whatever was to be dated before it is committed, since no statement
-- of ours takes longer than half a minute. The row is held first, and the count sees what was committed before that.
create function refundd.count_ended() returns void language plpgsql set enable_seqscan = off as $$
declare
    old timestamptz;
    new timestamptz := now() - interval '2 minutes';
begin
    select counted_until into old from refundd.ended_until for update;
    if old is null or old >= new then
        return;
    end if;
    insert into refundd.ended as e (channel, state, n)
    select r.channel, r.state, count(*) from refundd.refunds r
     where r.settled_at >= old and r.settled_at < new
     group by r.channel, r.state
        on conflict (channel, state) do update set n = e.n + excluded.n;
    update refundd.ended_until set counted_until = new;
end $$;

-- How many refunds are in each state: those that did not end by the small indexes that hold only them.
create function refundd.counts() returns table (channel text, state text, n bigint)
    language plpgsql stable set enable_seqscan = off as $$
declare
    since timestamptz;
begin
    select u.counted_until into since from refundd.ended_until u;
    return query
        select r.channel, 'ready', count(*) from refundd.refunds r where r.state = 'ready' group by r.channel
        union all
        select r.channel, 'sending', count(*) from refundd.refunds r where r.state = 'sending' group by r.channel
        union all
        select r.channel, r.state, count(*) from refundd.refunds r
         where r.state in ('accepted', 'unknown', 'review') group by r.channel, r.state
        union all
        select c.channel, c.state, sum(c.n)::bigint
          from (select e.channel, e.state, e.n from refundd.ended e where e.n > 0
                union all
                select r.channel, r.state, count(*) from refundd.refunds r
                 where r.settled_at >= since group by r.channel, r.state) c
         group by c.channel, c.state;
end $$;

comment on function refundd.counts is 'Refunds by channel and state; reads those that did not end, and those that ended in the last minutes.';

revoke execute on function refundd.count_ended from public;
revoke execute on function refundd.counts from public;

-- A person may set a failed refund to ready again: then it did not end.
create function refundd.it_did_not_end() returns trigger language plpgsql as $$
begin
    -- Held until the commit, so that the time does not move on between this and what it decides.
    perform 1 from refundd.ended_until for share;
    update refundd.ended e set n = e.n - 1
      from refundd.ended_until u
     where u.counted_until > old.settled_at and e.channel = old.channel and e.state = old.state;
    return null;
end $$;

create trigger refunds_that_did_not_end_are_not_counted after update on refundd.refunds
    for each row when (old.settled_at is not null and new.settled_at is null)
    execute function refundd.it_did_not_end();

insert into refundd.ended_until (counted_until) values (now() - interval '2 minutes');
insert into refundd.ended (channel, state, n)
select r.channel, r.state, count(*) from refundd.refunds r, refundd.ended_until u
 where r.settled_at < u.counted_until
 group by r.channel, r.state;

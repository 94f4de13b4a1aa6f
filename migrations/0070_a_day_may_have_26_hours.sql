-- Where clocks go back by two hours or more, a day has 26 hours or more: Antarctica/Troll each October, Antarctica/Casey in 2018. Claims
-- took a permit of a day for 25 hours at most. So a limit with such a `time_zone` sent nothing in the last hour of that day.
-- From now on a permit is of its day for as long as the published days say, up to 28 hours.
create or replace function refundd.windows_keep_rule(rule jsonb, windows bigint[], ordinals integer[], apart bigint) returns boolean
    language sql volatile
return not exists (
    select from unnest(windows, ordinals) as p (window_us, ordinal)
     cross join (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us) as here
     where p.ordinal > (rule ->> 'permits')::bigint
        or p.window_us > here.us + apart
        -- A day of a time zone may have 25 hours. A longer day ends where the next one begins.
        or p.window_us < here.us - apart - (rule ->> 'per_us')::bigint - (rule ->> 'lateness_us')::bigint
                         - case when rule ->> 'zone' is null then 0 else 3600000000 end
           and not (p.window_us >= here.us - apart - (rule ->> 'per_us')::bigint - (rule ->> 'lateness_us')::bigint - 14400000000
                    and coalesce((select min(d.begins_at) from refundd.zone_days d
                                   where d.zone = rule ->> 'zone'
                                     and d.begins_at > timestamptz 'epoch' + p.window_us * interval '1 microsecond')
                                 > timestamptz 'epoch' + (here.us - apart) * interval '1 microsecond', false))
        or case when rule ->> 'zone' is null then p.window_us % (rule ->> 'per_us')::bigint <> 0
                -- For all nodes a day begins when the first node that published it says.
                else not exists (select from refundd.zone_days d
                                  where d.zone = rule ->> 'zone'
                                    and d.begins_at = timestamptz 'epoch' + p.window_us * interval '1 microsecond') end);

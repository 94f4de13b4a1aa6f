-- The rule of a limit was a text of seven words, and Rust, Lua and SQL each read it by position. It is JSON now, and
-- each reads its fields by name.
--
-- Nodes of the last version cannot read JSON rules. They send nothing once this migration is done, and lose nothing:
-- restart all nodes right after it.

-- From the text of seven words. Any other text becomes a JSON string, which is no rule.
create function refundd.rule_from_words(words text) returns jsonb
    language sql immutable strict
return case when words ~ '^[^ ]+ [0-9]+ [0-9]+ [0-9]+ [0-9]+ [0-9]+ [^ ]+$' then
    jsonb_strip_nulls(jsonb_build_object(
        'algorithm', split_part(words, ' ', 1),
        'permits', split_part(words, ' ', 2)::bigint,
        'per_us', split_part(words, ' ', 3)::bigint,
        'lateness_us', split_part(words, ' ', 4)::bigint,
        'burst', case when split_part(words, ' ', 1) = 'token_bucket' then split_part(words, ' ', 5)::bigint end,
        'segments', case when split_part(words, ' ', 1) = 'sliding_window' then split_part(words, ' ', 6)::bigint end,
        'zone', nullif(split_part(words, ' ', 7), '-')))
    else to_jsonb(words) end;

-- A function with the columns in its body would forbid the change of their type.
create or replace function refundd.permits_are_kept_for(keep interval) returns interval
    language sql stable
return keep;

alter table refundd.limits alter column rule type jsonb using refundd.rule_from_words(rule);
alter table refundd.limit_rules alter column rule type jsonb using refundd.rule_from_words(rule);
drop function refundd.rule_from_words, refundd.rule_shape, refundd.rule_reach, refundd.rule_memory;

comment on column refundd.limits.rule is 'How the limit counts, as JSON: algorithm, permits, per_us, lateness_us, and where the algorithm has them burst, segments, zone.';

-- What two rules must have in common so that the count under one can be used under the other: all but permits and burst.
create function refundd.rule_shape(rule jsonb) returns jsonb
    language sql immutable strict parallel safe
return rule - 'permits' - 'burst';

-- How long after its number says a permit of the old rule may still matter under the new rule, in us: until it surely
-- has reached the bank, and, where spans become shorter, until the longer span is over, ten seconds at most.
create function refundd.rule_reach(old jsonb, new jsonb) returns bigint
    language sql immutable strict parallel safe
return greatest((old ->> 'lateness_us')::bigint,
                case when old ->> 'algorithm' = 'fixed_window' then (old ->> 'per_us')::bigint
                     when (old ->> 'per_us')::bigint <= 10000000
                     then (old ->> 'lateness_us')::bigint + (old ->> 'per_us')::bigint - (new ->> 'per_us')::bigint
                     else 0 end);

-- How long a permit of a rule counts at most, in us, as `Rule::memory`. A rule of another version counts for as long as
-- any rule can.
create function refundd.rule_memory(rule jsonb) returns bigint
    language sql immutable strict parallel safe
return case when jsonb_typeof(rule -> 'per_us') = 'number' and jsonb_typeof(rule -> 'lateness_us') = 'number'
            then (rule ->> 'per_us')::bigint + (rule ->> 'lateness_us')::bigint
                 + case when (rule ->> 'segments')::bigint > 0
                        then ((rule ->> 'per_us')::bigint + (rule ->> 'lateness_us')::bigint) / (rule ->> 'segments')::bigint
                        else 0 end
            else 31 * 86400000000::bigint end;

-- As before (migration 0021).
create or replace function refundd.permits_are_kept_for(keep interval) returns interval
    language sql stable
begin atomic
    select greatest(keep, max(2 * ruled.memory) * interval '1 microsecond')
      from (select l.limit_name,
                   greatest(refundd.rule_memory(l.rule), refundd.rule_memory(newest.rule),
                            case when l.older_at > now() - (l.older_us + refundd.rule_memory(l.rule)) * interval '1 microsecond'
                                 then refundd.rule_memory(l.rule) + l.older_us end) as memory
              from refundd.limits l
              left join lateral (select r.rule from refundd.limit_rules r
                                  where r.limit_name = l.limit_name order by r.published_at desc limit 1) newest on true) ruled
     where ruled.memory * interval '1 microsecond' > keep / 2
       and exists (select from refundd.permits p where p.limit_name = ruled.limit_name);
end;

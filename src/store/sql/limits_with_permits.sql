-- limits_with_permits: limits that have permits in the ledger.
-- The statement jumps from limit to limit through the index.
    with recursive name as (
        select min(limit_name) as name from refundd.permits
        union all
        select (select min(limit_name) from refundd.permits where limit_name > name.name) from name where name.name is not null
    )
    select name from name where name is not null

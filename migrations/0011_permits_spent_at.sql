-- After a fail-over the limiter's clock is another server's. What the ledger holds is dated by the old one; how
-- long ago it was spent only Postgres can tell. Null for permits of before, which are taken by their dates.
alter table refundd.permits add column spent_at timestamptz;
alter table refundd.permits alter column spent_at set default clock_timestamp();

comment on column refundd.permits.spent_at is 'When it was written down, by Postgres''s clock.';

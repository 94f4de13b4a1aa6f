#!/bin/sh
# Makes the shipped role of nodes, and the user with which nodes log in. May be run again.
set -eu

psql --no-psqlrc --quiet --file "${CONFIG:-/config}/node-role.sql"
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set password="$NODE_PASSWORD" <<'SQL'
select not exists (select from pg_catalog.pg_roles where rolname = 'refundd_app') as missing \gset
\if :missing
create role refundd_app login in role refundd_node;
\endif
alter role refundd_app password :'password';
SQL

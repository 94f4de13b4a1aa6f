#!/bin/sh
# Makes the shipped role of nodes, and the user with which nodes log in. May be run again. On the schema of a newer version the role
# keeps the rights that it has there: an older version that is started again needs no others.
set -eu

said=$(psql --no-psqlrc --quiet --file "${CONFIG:-/config}/node-role.sql" 2>&1) || case $said in
    *"the schema is newer"*) ;;
    *)
        echo "$said" >&2
        case $said in
            *"the schema is older"*) echo "The image is older than this folder: docker compose up --build" >&2 ;;
        esac
        exit 1
        ;;
esac
[ -z "$said" ] || echo "$said"
# Every user of the host reads the command line of psql, and only its own user the environment.
: "$NODE_PASSWORD"
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 <<'SQL'
\set password `printf '%s' "$NODE_PASSWORD"`
select not exists (select from pg_catalog.pg_roles where rolname = 'refundd_app') as missing \gset
\if :missing
create role refundd_app login in role refundd_node;
\endif
alter role refundd_app password :'password';
SQL

#!/bin/sh
# Makes the owner of the schema and its database. The image of Postgres runs this once, when it makes its data.
set -eu

# Every user of the host reads the command line of psql, and only its own user the environment.
: "$OWNER_PASSWORD"
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username postgres --dbname postgres <<'SQL'
\set password `printf '%s' "$OWNER_PASSWORD"`
create role refundd login password :'password';
create database payments owner refundd;
SQL

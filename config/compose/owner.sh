#!/bin/sh
# Makes the owner of the schema and its database. The image of Postgres runs this once, when it makes its data.
set -eu

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set password="$OWNER_PASSWORD" --username postgres --dbname postgres <<'SQL'
create role refundd login password :'password';
create database payments owner refundd;
SQL

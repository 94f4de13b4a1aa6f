#!/bin/sh
# Starts Redis with the shipped user of nodes and no other. The file of users has the hash of the password, and nobody else reads it.
set -eu

folder=${FOLDER:-/tmp}
umask 077
hash=$(printf %s "$REDIS_PASSWORD" | sha256sum)
{
    echo "user default off"
    sed "s/#CHANGE-ME/#${hash%% *}/" "${CONFIG:-/config}/redis.acl"
} >"$folder/users.acl"
# A waiting list and a clock: nothing in it is worth keeping, and nothing may be evicted.
exec redis-server --aclfile "$folder/users.acl" --dir "$folder" --save "" --appendonly no \
    --maxmemory 256mb --maxmemory-policy noeviction "$@"

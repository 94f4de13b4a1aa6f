#!/bin/sh
# Starts Redis with the shipped user of nodes and no other. The file of users must not be read by others: it has the password.
set -eu

folder=${FOLDER:-/tmp}
umask 077
{
    echo "user default off"
    sed "s/CHANGE-ME/$REDIS_PASSWORD/" "${CONFIG:-/config}/redis.acl"
} >"$folder/users.acl"
# A waiting list and a clock: nothing in it is worth keeping, and nothing may be evicted.
exec redis-server --aclfile "$folder/users.acl" --dir "$folder" --save "" --appendonly no \
    --maxmemory 256mb --maxmemory-policy noeviction "$@"

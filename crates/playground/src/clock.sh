# Starts a server that reads the wall clock through libfaketime; the monotonic clock is left alone.
#
# $1  libfaketime
# $2  the server's Unix socket: once it is there, the server is up
# then the server's command line
#
# What is added to the clock stands in the file `clock` of this folder.
library=$1 socket=$2
shift 2
rm -f "$socket"

# libfaketime would leave two names behind when its process is killed. They are needed only until it
# is up, so they are taken away then; `$$` is the server's number too, for it takes our place.
(
    rounds=0
    until [ -e "$socket" ] || [ "$rounds" -ge 500 ]; do
        rounds=$((rounds + 1))
        sleep 0.02 2>/dev/null || sleep 1
    done
    rm -f "/dev/shm/faketime_shm_$$" "/dev/shm/sem.faketime_sem_$$"
) &

# The C library is named as well, so that memory comes from it: jemalloc asks for the time while it
# starts, libfaketime asks for memory while it answers, and both would wait for ever.
exec env LD_PRELOAD="$library:libc.so.6" \
    FAKETIME_TIMESTAMP_FILE="$PWD/clock" FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 \
    NO_FAKE_STAT=1 "$@"

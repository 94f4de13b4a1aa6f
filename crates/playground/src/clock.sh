# Starts a server that reads the wall clock through libfaketime; the monotonic clock is left alone.
#
# $1  libfaketime
# $2  the server's Unix socket: when it exists, the server is up
# The other arguments are the server's command line.
#
# The file `clock` in this folder holds the offset that is added to the clock.
library=$1 socket=$2
shift 2
rm -f "$socket"

# libfaketime leaves two names in /dev/shm when its process is killed. It needs them only until the server is up,
# so they are removed then. `$$` is also the server's process id, because `exec` below replaces this shell.
(
    rounds=0
    until [ -e "$socket" ] || [ "$rounds" -ge 500 ]; do
        rounds=$((rounds + 1))
        sleep 0.02 2>/dev/null || sleep 1
    done
    rm -f "/dev/shm/faketime_shm_$$" "/dev/shm/sem.faketime_sem_$$"
) &

# The C library is preloaded as well, so that memory comes from it. Otherwise jemalloc asks for the time while it
# starts, libfaketime asks for memory before it answers, and each waits for the other for ever.
exec env LD_PRELOAD="$library:libc.so.6" \
    FAKETIME_TIMESTAMP_FILE="$PWD/clock" FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 \
    NO_FAKE_STAT=1 "$@"

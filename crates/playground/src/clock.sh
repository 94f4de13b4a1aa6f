# Starts a server that reads the wall clock through libfaketime; the monotonic clock is left alone.
#
# $1  the server's Unix socket: when it exists, the server is up
# The other arguments are what its environment holds for libfaketime (NAME=VALUE), and the server's command line.
socket=$1
shift
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

exec env "$@"

# Starts one server. Ends it and removes its folder when this script's standard input closes.
#
# $1  the folder; this script makes it and removes it
# $2  the command to run once, before the first start (may be empty)
# $3  the server's command line, quoted for the shell
# $4  the signal that ends the server at last
#
# Each line read is `NUMBER VERB [SIGNAL]`; each answer is `NUMBER WORD` in the file `reply`.
unset REFUNDD_REAPER
folder=$1 prepare=$2 launch=$3 farewell=$4 pid=

trap '' HUP INT
mkdir -m 700 "$folder" || exit 73
cd "$folder" || exit 73

pause() { sleep 0.02 2>/dev/null || sleep 1; }

# The file is renamed into place, so that a reader never sees half an answer.
reply() { echo "$number $1" >reply.new && mv reply.new reply; }

# The inner shell waits for the server, so the kernel cannot give its process id to another process.
start() {
    rm -f pid gone
    (
        trap - TERM
        eval "exec $launch" </dev/null >>log 2>&1 &
        echo "$!" >pid.new && mv pid.new pid
        wait "$!"
        echo "$?" >gone.new && mv gone.new gone
    ) &
    until [ -e pid ]; do pause; done
    pid=$(cat pid)
}

stop() {
    [ -n "$pid" ] || return 0
    [ -e gone ] || kill "-$1" "$pid" 2>/dev/null
    rounds=0
    until [ -e gone ]; do
        rounds=$((rounds + 1))
        [ "$rounds" -ne 300 ] || kill -KILL "$pid" 2>/dev/null
        [ "$rounds" -lt 600 ] || break
        pause
    done
    pid=
}

leave() {
    trap '' TERM
    stop "$farewell"
    cd /
    rounds=0
    # Children of the server may still write for a moment after the server has ended.
    until rm -rf "$folder" 2>/dev/null && [ ! -e "$folder" ]; do
        rounds=$((rounds + 1))
        [ "$rounds" -lt 300 ] || exit 74
        pause
    done
    exit 0
}

trap leave TERM
number=0
reply ready
while read -r number verb signal; do
    case $verb in
        prepare) eval "$prepare" </dev/null >>log 2>&1; reply "$?" ;;
        start) start; reply "$pid" ;;
        stop) stop "$signal"; reply stopped ;;
    esac
done
leave

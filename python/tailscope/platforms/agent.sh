#!/bin/sh
# shellcheck shell=dash
# The first process of a guest. It does what the host asks for on the second serial port, a line each:
#   run N WORDS...      run a command:                  done N STATUS OUTPUT
#   start N WORDS...    start one:                      line N TEXT ... end N STATUS ERRORS
#   signal N NAME       send a signal to that
#   write N PATH TEXT   write a file:                   done N STATUS ""
#   off                 end the guest
# Words, outputs and texts are in base64: what they hold is never read as a command.
if [ $$ = 1 ]; then
    mount -t proc none /proc
    mount -t sysfs none /sys
    # Nothing may hide what the archive holds, wherever its programs lie on the host: /tmp stays a
    # folder of the archive, and folders below /dev (such as /dev/shm) come with it.
    chmod 1777 /tmp
    mkdir /devices
    mount -t devtmpfs none /devices
    for folder in /dev/*/; do
        [ ! -d "$folder" ] || cp -a "$folder" /devices
    done
    mount -o move /devices /dev
    # DPDK takes nothing from folders that everybody may write to.
    chmod 755 /
    export RUNTIME_DIRECTORY=/run
    exec </dev/null >/dev/ttyS0 2>&1
    while read -r module; do
        insmod "$module" || echo "module $module: refused"
    done </modules
    ip link set lo up
    # As a child: what it starts and leaves is ours, and the end of that interrupts no reading.
    "$0"
    poweroff -f
fi
exec 3<>/dev/ttyS1
stty raw -echo <&3

say() { printf '%s\n' "$*" | flock /tmp/lock cat >&3; }

encoded() { base64 "$1" | tr -d '\n'; }

decoded() { printf '%s' "$1" | base64 -d; }

started() {
    local number=$1 status
    shift
    mkfifo "/tmp/pipe.$number"
    while IFS= read -r text; do say "line $number $text"; done <"/tmp/pipe.$number" &
    /bin/env "$@" >"/tmp/pipe.$number" 2>"/tmp/errors.$number" &
    echo $! >"/tmp/pid.$number"
    wait $!
    status=$?
    wait
    tail -c 4000 "/tmp/errors.$number" >"/tmp/end.$number"
    say "end $number $status $(encoded "/tmp/end.$number")"
}

say "ready $(uname -r)"
while IFS= read -r line <&3; do
    # shellcheck disable=SC2086 # it is to be split into words
    set -- $line
    verb=$1 number=$2
    [ $# -ge 2 ] && shift 2
    count=$#
    while [ "$count" -gt 0 ]; do
        set -- "$@" "$(decoded "$1")"
        shift
        count=$((count - 1))
    done
    case $verb in
    run)
        # By env: the shell has commands of its own that are called as others are.
        /bin/env "$@" >"/tmp/output.$number" 2>&1
        say "done $number $? $(encoded "/tmp/output.$number")"
        ;;
    start) (started "$number" "$@" &) ;;
    signal) kill "-$1" "$(cat "/tmp/pid.$number")" ;;
    write)
        printf '%s' "$2" >"$1"
        say "done $number $? "
        ;;
    off) exit ;;
    esac
done

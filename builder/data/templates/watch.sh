# Tells the program of a rank that the end of its job is near; sourced by rank.sh.
# Slurm's own SIGTERM reaches every process of a task (proctrack/linuxproc), so also the one that mounts the image where the
# runtime has no setuid part, and the program dies of that before it can save; or the task alone (proctrack/cgroup), which
# is a shell, or the launcher of the ranks. So the job script (record.sh) makes a file, and each rank looks for it.
# shellcheck shell=bash

# watch_stop: in the background; this process then becomes the program. The watcher ends with it, within 0.5 s.
watch_stop() {
    if [ -n "${RECIPE_STOP:-}" ]; then wait_for_stop "$RECIPE_STOP.term" </dev/null >/dev/null 2>&1 & fi
}

# wait_for_stop FILE: no process is started while nothing happens: `read` waits on a pipe that nobody writes to.
wait_for_stop() {
    local never file state turn=0
    set +e # processes may end while they are looked at
    # A launcher waits until nobody has its sockets open any more (PMI_FD).
    for file in "/proc/$BASHPID/fd"/*; do
        case ${file##*/} in [012] | 255) ;; *) eval "exec ${file##*/}>&-" ;; esac
    done
    exec {never}<> <(:)
    # One that has ended stays a zombie until its launcher asks.
    while read -r state <"/proc/$$/stat" && [[ ${state##*) } != [ZX]* ]]; do
        # The file system is all nodes' own: it is asked every 2 s.
        if [ "$turn" -eq 0 ] && [ -e "$1" ]; then
            wait_for_moment "$1" "$never"
            tell "$$"
            return
        fi
        turn=$(((turn + 1) % 4))
        read -r -t 0.5 -u "$never"
    done
}

# wait_for_moment FILE DESCRIPTOR: until the second that the file names, 10 s at most: all ranks are told at one time. Some
# launchers end the others as soon as the first rank has left.
wait_for_moment() {
    local moment="" now tries
    read -r moment <"$1"
    case "$moment" in "" | *[!0-9]*) return 0 ;; esac
    for ((tries = 0; tries < 100; tries++)); do
        printf -v now '%(%s)T' -1
        if [ "$now" -ge "$moment" ]; then return 0; fi
        read -r -t 0.1 -u "$2"
    done
}

# tell PID: SIGTERM to the program below the runtime's own process, and not to what mounts the image. A shell that has no
# trap is spared: it would end before what it runs has saved.
tell() {
    local name="" word caught=0
    IFS= read -r -d '' name <"/proc/$1/cmdline"
    case "$name" in
        *" runtime parent"*) tell_below "$1" ;;
        *)
            name=${name##*/}
            case "${name#-}" in
                sh | bash | dash | ash | zsh | ksh | mksh | csh | tcsh | fish)
                    tell_below "$1"
                    while read -r word caught; do
                        if [ "$word" = SigCgt: ]; then break; fi
                    done <"/proc/$1/status"
                    if [ $((0x${caught:-0} >> 14 & 1)) -eq 1 ]; then kill -TERM "$1"; fi
                    ;;
                *squashfuse* | fuse2fs | fuse-overlayfs | gocryptfs) ;;
                *) kill -TERM "$1" ;;
            esac
            ;;
    esac
}

# tell_below PID: the processes that it has started; itself where the kernel does not name them.
tell_below() {
    local task found child names=""
    for task in "/proc/$1/task"/*; do
        found=""
        IFS= read -r found <"$task/children"
        names="$names $found"
    done
    if [ ! -r "/proc/$1/task/$1/children" ]; then kill -TERM "$1"; fi
    for child in $names; do
        if [ "$child" != "$BASHPID" ]; then tell "$child"; fi
    done
}

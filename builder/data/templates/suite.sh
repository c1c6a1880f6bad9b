# The smoke suite: workloads one after the other, judged together; sourced by the scripts beside it.
# Uses engine.sh, container.sh and launch (of the script that sources it).
# shellcheck shell=bash
# shellcheck disable=SC2154 # ranks, device, floors: of the script that sources it; digits: of container.sh
stopped=""

# begin_suite SHAPE WORKLOAD...: an empty folder for the results, or an error before anything starts.
begin_suite() {
    results_folder "$PWD/results" "$1"
    if [ -n "${RECIPE_RESULTS:-}" ]; then . run/container.sh; fi
    rm -f "$results"/*.json
    # A snapshot is that of a training which a signal or the time limit broke off; one of an older image is none of ours.
    for snapshot in "$results"/*.snapshot; do
        if [ "${image:-}" -nt "$snapshot" ]; then rm -f "$snapshot"; fi
    done
    shift
    expected=$(IFS=, && printf '%s' "$*")
    # The suite is ours: nothing of the user's Python belongs into it, and it works in the plan folder. The TMPDIR of the
    # shell that submitted it may lie on another machine, be no folder of the image, or be too long for a socket.
    unset RECIPE_WORKDIR TMPDIR
    image_alone
    if type heed_stop >/dev/null 2>&1; then heed_stop; fi
}

# The exit code of the first task that failed, from what srun prints: by a code, or by a signal (128 and its number).
first_failed='/srun: error: .*: tasks\{0,1\} [^:]*: /{
s/.*: Exited with exit code \([0-9]\{1,3\}\)$/\1/
s/.*: Illegal instruction.*/132/
s/.*: Aborted.*/134/
s/.*: Bus error.*/135/
s/.*: Floating point exception.*/136/
s/.*: Killed.*/137/
s/.*: Segmentation fault.*/139/
s/.*: Terminated.*/143/
/^[0-9]*$/{
p
:rest
n
b rest
}
}'

# run_ranks SRUN...: one launch by srun. Where one rank fails srun ends the others, and exits with the highest code of all:
# the code of this function is that of the first rank that failed.
run_ranks() {
    local code=0 folder listener said found answer first=""
    folder=$(mktemp -d) && mkfifo "$folder/said"
    # shellcheck disable=SC2094 # the answer is read when the listener has ended
    exec {found}>"$folder/first" {answer}<"$folder/first"
    (trap '' TERM INT HUP && tr '\r' '\n' <"$folder/said" | sed -n "$first_failed" >&"$found") &
    listener=$!
    exec {said}>"$folder/said" {found}>&-
    rm -r "$folder"
    # All that srun prints goes on at once; the copy ends with it.
    "$@" 2> >(trap '' TERM INT HUP PIPE && exec tee "/dev/fd/$said" >&2) || code=$?
    exec {said}>&-
    wait "$listener" || true
    read -r first <&"$answer" || true
    exec {answer}<&-
    ranks_ended "$code" "$first"
}

# told_to_end: whether this job was told to end, by a signal or by the time limit.
told_to_end() { [ -e "${RECIPE_STOP:-.none}" ] || [ -e "${RECIPE_STOP:-.none}.term" ]; }

# ranks_ended CODE FIRST: returns the code of a launch by srun; 143 of a job which goes on, and was not told to end, is a
# failure.
ranks_ended() {
    # shellcheck disable=SC2034 # ask_state sets them, goes_on reads them
    local state why left code=$1 first=${2:-$1}
    if [ "$code" -ne 0 ] && { [ "$code" -eq 143 ] || [ "$first" -ne "$code" ]; } && ! told_to_end; then
        ask_state
        if goes_on && ! in_notice "$left"; then
            code=$first
            if [ "$code" -eq 143 ]; then code=1; fi
        fi
    fi
    return "$code"
}

# every_rank WORKLOAD OPTION...: one workload on all ranks; what it finds is in its result.
every_rank() {
    local name=$1 status=0
    shift
    if [ -n "$stopped" ]; then return 0; fi
    case $name in mnist | ddp) set -- "$@" "${digits[@]}" ;; esac
    printf '\n== %s\n' "$name"
    launch python3 -B smoke "$name" --result "$results/$name.json" "$@" || status=$?
    # A job that was told to end has ended its ranks: when the first one exits, others may fail without the image's mount.
    if [ "$status" -ne 0 ] && told_to_end; then status=143; fi
    # What has come to its end, good or bad, begins anew the next time.
    if [ "$status" -ne 143 ]; then rm -f "$results/$name"-*.snapshot; fi
    # 128 + 15: the launcher and its ranks were told to end, so nothing more is begun.
    if [ "$status" -eq 143 ]; then
        stopped="ended by SIGTERM in $name"
        if type near_limit >/dev/null 2>&1 && near_limit; then stopped="time limit, in $name"; fi
    fi
}

# one_process WORKLOAD OPTION...: the same for a workload of one process.
one_process() {
    export RECIPE_ONE_PROCESS=yes
    every_rank "$@"
    unset RECIPE_ONE_PROCESS
}

# conclude_suite: the verdict over all workloads, also where the image cannot even start a Python; ends the script.
conclude_suite() {
    local status=0
    printf '\n== verdict\n'
    in_image python3 -B smoke conclude "$results" --expect "$expected" ${stopped:+--reason "$stopped"} || status=$?
    if [ ! -s "$results/verdict.json" ]; then
        without_python "the image did not start a Python that could judge (exit code $status)"
        status=1
    fi
    # The job's record then says why.
    if [ -n "$stopped" ]; then status=143; fi
    exit "$status"
}

# without_python REASON: the verdict of an image that cannot give one.
without_python() {
    local draft="$results/.verdict-$$"
    printf 'verdict: FAIL (%s)\n' "$1"
    printf '{"schema": 1, "verdict": "FAIL", "reason": "%s", "host": "%s", "workloads": {}}\n' \
        "$1" "$(uname -n)" >"$draft" && mv -f "$draft" "$results/verdict.json"
}

# plain_ranks RANKS COMMAND...: ranks as plain processes of this machine; the first that fails ends the others.
plain_ranks() {
    local world=$1 rank status=0 code
    pids=()
    shift
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((10000 + $$ % 10000)) WORLD_SIZE="$world"
    for ((rank = 0; rank < world; rank++)); do
        RANK=$rank LOCAL_RANK=$rank exec_image "$@" &
        pids+=("$!")
    done
    # Ctrl-C does not reach what runs in the background.
    trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT
    for ((rank = 0; rank < world; rank++)); do
        code=0
        wait -n || code=$?
        if [ "$code" -ne 0 ] && [ "$status" -eq 0 ]; then
            status=$code
            kill "${pids[@]}" 2>/dev/null || true
        fi
    done
    trap - EXIT
    return "$status"
}

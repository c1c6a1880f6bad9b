# A job's record: jobs/JOBID.json, which says how the job ended, whole or not at all; sourced by the job scripts.
# The job script runs a second time as a child of its first run, which waits for it and writes the record, however it
# ends: by itself, by scancel, or near the time limit, when Slurm sends SIGTERM (#SBATCH --signal in each job script).
# shellcheck shell=bash

# record_job SELF PURPOSE SHAPE SCRIPT NOTICE BY [ARGUMENT...]: returns in the child and never in the first run.
# SELF is the job script as it runs, SCRIPT its path in the plan folder; SIGTERM comes NOTICE seconds before the limit;
# BY is ranks where each of them looks for the file that tells it to end (run/watch.sh).
record_job() {
    job_id=${SLURM_JOB_ID:-here-$$}
    # A task of an array goes by the name that sbatch, squeue and scancel give it.
    if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job_id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
    job_notice=$5 job_by=$6 job_folder=jobs
    # A plan folder that cannot be written keeps its records with the results.
    if [ -n "${RECIPE_RESULTS:-}" ] && [ ! -w . ]; then job_folder=$RECIPE_RESULTS/jobs; fi
    if [ "${recorded_by:-}" = "$PPID" ]; then
        unset recorded_by
        return 0
    fi
    case $job_folder in
        /*) export RECIPE_STOP=$job_folder/.$job_id.stop ;;
        *) export RECIPE_STOP=$PWD/$job_folder/.$job_id.stop ;;
    esac
    job_purpose=$2 job_shape=$3 job_script=$4 job_reason="" job_signalled="" job_code=0 job_said=""
    job_started=$(date +%s)
    mask_output
    # Of a run before Slurm started the job again.
    rm -f "$job_folder/$job_id.json" "$job_folder/.$job_id.reason" "$job_folder/$job_id.events.jsonl" "$RECIPE_STOP"* 2>/dev/null || true
    open_events
    set -- "$1" "${@:7}"
    hold_folders
    start_child "$@"
    trap job_stopped TERM INT HUP
    while :; do
        job_signalled="" job_before=$job_code job_code=0
        wait "$job_child" || job_code=$?
        if [ -z "$job_signalled" ]; then break; fi
    done
    # A child that ended while the signal was dealt with has no code any more (bash 5.2 says -1 or 127).
    if [ "$job_code" -lt 0 ] || { [ "$job_code" -eq 127 ] && [ "$job_before" -ne 0 ]; }; then job_code=$job_before; fi
    trap '' TERM INT HUP
    if [ -z "$job_reason" ]; then job_reason=$(cat "$job_folder/.$job_id.reason" 2>/dev/null) || true; fi
    if [ "$job_code" -ne 0 ] && [ -z "$job_reason" ]; then ask_reason; fi
    if [ "$job_reason" = cancelled ]; then own_code; fi
    rm -f "$job_folder/.$job_id.reason" "$RECIPE_STOP"* 2>/dev/null || true
    close_events
    write_record
    release_folders
    end_mask
    exit "$job_code"
}

# hold_folders: what keeps the folders that ranks make on the nodes, until release_folders removes them (run/local.sh).
# Input 4 of the tasks on the nodes closes with this script, however it ends.
hold_folders() {
    removed_folders=() job_holder=""
    exec 4>/dev/null
    if [ ! -f run/local.sh ] || [ "${ENVIRONMENT:-}" != BATCH ] || [ -z "${SLURM_JOB_ID:-}" ]; then return 0; fi
    case $job_purpose in run | smoke) ;; *) return 0 ;; esac
    . run/local.sh
    name_local_folders
    if [ "${SLURM_JOB_NUM_NODES:-1}" -le 1 ] || [ "${#removed_folders[@]}" -eq 0 ]; then return 0; fi
    local nodes=$SLURM_JOB_NUM_NODES
    exec 4> >(exec srun --overlap --export=ALL --cpu-bind=none --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
        --cpus-per-task=1 bash run/local.sh hold "${removed_folders[@]}" >/dev/null 2>&1 3>&-)
    job_holder=$!
}

# release_folders: on this node, and within some seconds on the others.
release_folders() {
    local tries
    exec 4>&-
    if [ "${#removed_folders[@]}" -eq 0 ]; then return 0; fi
    remove_local_folders "${removed_folders[@]}" || true
    if [ -z "$job_holder" ]; then return 0; fi
    for tries in {1..100}; do
        if ! kill -0 "$job_holder" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    kill "$job_holder" 2>/dev/null || true
}

# open_events: makes the file in which the steps of a build report; what runs images can write to this folder, and gets none.
open_events() {
    unset RECIPE_EVENTS
    case $job_purpose in smoke | verify | run) return 0 ;; esac
    local file=${RECIPE_STOP%/.*}/$job_id.events.jsonl
    if { mkdir -p "$job_folder" && (umask 077 && set -C && : >"$file"); } 2>/dev/null; then export RECIPE_EVENTS=$file; fi
}

# close_events: hides secrets in it, as in the log.
close_events() {
    if [ -n "${RECIPE_EVENTS:-}" ] && [ ! -L "$RECIPE_EVENTS" ]; then LC_ALL=C sed -i -f <(mask_rules) "$RECIPE_EVENTS" 2>/dev/null || true; fi
}

# take_command [WORD...]: sets the array words to the command: that of the file $RECIPE_COMMAND where `recipe run` has
# left one, since the words of a job stand in squeue and ps for everybody, else the words that are given.
take_command() {
    local word
    words=("$@")
    if [ -z "${RECIPE_COMMAND:-}" ]; then return 0; fi
    [ -r "$RECIPE_COMMAND" ] || { echo "recipe: error: there is no command: $RECIPE_COMMAND cannot be read" >&2 && exit 2; }
    words=()
    while IFS= read -r -d '' word; do words+=("$word"); done <"$RECIPE_COMMAND"
    unset RECIPE_COMMAND
}

# mask_output: what a job says goes to its log through a filter that hides secrets, as the log of a build is masked.
mask_output() {
    job_filter=""
    if [ -z "${SLURM_JOB_ID:-}" ] || [ -t 1 ] || ! [ /dev/stdout -ef /dev/stderr ]; then return 0; fi
    local -a filter=(sed -u)
    if command -v stdbuf >/dev/null; then filter=(stdbuf -oL sed); fi
    exec 3>&1 > >(trap '' TERM INT HUP && LC_ALL=C exec "${filter[@]}" -f <(mask_rules)) 2>&1
    job_filter=$!
}

# end_mask: the rest of the output is in the log; what still holds the filter's other end is not waited for.
end_mask() {
    local tries
    if [ -z "$job_filter" ]; then return 0; fi
    exec >&3 2>&3 3>&-
    for tries in {1..30}; do
        if ! kill -0 "$job_filter" 2>/dev/null; then break; fi
        sleep 0.1
    done
}

# mask_rules: prints a script for sed, so that no secret stands on a command line; long values first.
mask_rules() {
    local name value part
    shopt -s nocasematch
    for name in $(compgen -e); do
        value=${!name}
        if [[ $name =~ TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|KEY|AUTH_CONFIG ]] &&
            ! [[ $name =~ (_ID|_FILE|_PATH|_DIR|_SOCK|_TYPE|_BACKEND|_PROVIDER)$ ]]; then
            while IFS= read -r part; do mask_rule "$part"; done <<<"$value"
        fi
        while [[ $value =~ [a-z][a-z0-9+.-]*://([^[:space:]/@]+)@(.*) ]]; do
            part=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
            case $part in
                *:*) mask_rule "$part" && mask_rule "${part#*:}" && mask_rule "$(printf '%b' "${part//%/\\x}")" &&
                    part=${part#*:} && mask_rule "$(printf '%b' "${part//%/\\x}")" ;;
                ????????*) mask_rule "$part" && mask_rule "$(printf '%b' "${part//%/\\x}")" ;;
            esac
        done
    done | sort -rn | cut -f 2-
    printf '%s\n' 's#://[^[:space:]/@:]*:[^[:space:]/@]\{1,\}@#://***@#g'
}

# mask_rule TEXT: prints its length and the rule that hides it; what is short would blank out ordinary words.
mask_rule() {
    local text=$1 quoted="" at letter
    text=${text#"${text%%[![:space:]]*}"} text=${text%"${text##*[![:space:]]}"}
    if [ "${#text}" -lt 4 ]; then return 0; fi
    for ((at = 0; at < ${#text}; at++)); do
        letter=${text:at:1}
        case $letter in [\\/.*^$] | '[' | ']') quoted+="\\$letter" ;; *) quoted+=$letter ;; esac
    done
    printf '%d\ts/%s/***/g\n' "${#text}" "$quoted"
}

# say_reason TEXT: for the child: why the job ends as it does, where its exit code does not say it.
say_reason() {
    mkdir -p "$job_folder" && printf '%s' "$1" >"$job_folder/.$job_id.reason" || true
}

# start_child SCRIPT ARGUMENT...: in a process group of its own, so that all of it can be ended, unless someone sits here.
start_child() {
    if [ -t 0 ]; then
        recorded_by=$$ bash "$@" <&0 3>&- 4>&- &
        job_child=$!
        return
    fi
    set -m
    recorded_by=$$ bash "$@" </dev/null 3>&- 4>&- &
    job_child=$!
    set +m
}

# What SIGTERM means is known by Slurm; a record is written at once, since nobody says how long this job still lives, and
# again when the work has ended.
job_stopped() {
    local state why left
    job_signalled=yes
    if [ -z "$job_reason" ]; then
        ask_state
        name_reason
        job_reason=${job_reason:-ended by a signal}
    fi
    job_code=143
    write_record ending
    if [ "$job_reason" = "time limit" ] && tell_work; then return 0; fi
    kill -TERM -- "-$job_child" 2>/dev/null || kill -TERM "$job_child" 2>/dev/null || true
}

# name_reason: sets job_reason by the caller's state, why and left; "" where the job goes on and its limit is not near.
name_reason() {
    case "$state $why" in
        *TimeLimit*) job_reason="time limit" ;;
        PREEMPTED*) job_reason="preempted" ;;
        *) if goes_on; then
            if in_notice "$left"; then job_reason="time limit"; fi
        else
            job_reason="cancelled"
        fi ;;
    esac
}

# goes_on: whether the caller's state is one of a job that has its nodes and keeps them. Slurm may print a flag in the place
# of RUNNING: SIGNALING while a signal is on its way, STOPPED after SIGSTOP, and others. That of a cancelled job is COMPLETING.
goes_on() {
    case "$state" in
        RUNNING | SIGNALING | STOPPED | SUSPENDED | RESIZING | CONFIGURING | POWER_UP_NODE | STAGE_OUT | EXPEDITING) return 0 ;;
    esac
    return 1
}

# ask_reason: the work has failed, and this script was not told to end. Slurm ends the steps of a job before its script: the
# launcher may find the job gone first. A record is written before, since nobody says how long this job still lives.
ask_reason() {
    local state why left
    if [ -z "${SLURM_JOB_ID:-}" ]; then return 0; fi
    write_record ending
    ask_state 1
    case "$state $why" in
        *NodeDown*) ;;
        # Tasks that were told to end near the limit end with 128 + 15; the job goes on otherwise.
        *) if ! goes_on || [ "$job_code" -eq 143 ]; then name_reason; fi ;;
    esac
}

# own_code: a cancelled job has ended by SIGTERM where its code is the launcher's own. srun ends with 1 where it cannot make
# a step, or with the low byte of what the node has answered; Slurm counts three of its errors as races with the end of a
# job (slurmctld/proc_mgr.c): ESLURMD_CREDENTIAL_REVOKED 4008, ESLURMD_JOB_NOTRUNNING 4027, ESLURM_ALREADY_DONE 2021.
own_code() {
    case $job_code in 0 | 1 | 168 | 187 | 229) job_code=143 ;; esac
}

# heed_stop: for work that looks for the file $RECIPE_STOP and then ends by itself.
heed_stop() {
    if [ -n "${RECIPE_STOP:-}" ]; then mkdir -p "${RECIPE_STOP%/*}" && : >"$RECIPE_STOP.heeded" || true; fi
}

# tell_work: the time limit is near. What heeds the file is told by it and has half of the notice to end; then, and other
# work at once, each rank's program gets SIGTERM from its watcher. Slurm's own signal is for where no file can be made: it
# may also reach the process that mounts the image, and what runs in the image dies of that.
# False where the process group is still to be told.
tell_work() {
    local seconds=$((job_notice / 2))
    if [ -e "$RECIPE_STOP.heeded" ] && : >"$RECIPE_STOP"; then
        while kill -0 "$job_child" 2>/dev/null; do
            if [ "$seconds" -le 0 ]; then break; fi
            seconds=$((seconds - 1))
            sleep 1
        done
        if ! kill -0 "$job_child" 2>/dev/null; then return 0; fi
    fi
    [ "$job_by" = ranks ] || return 1
    { mkdir -p "${RECIPE_STOP%/*}" && : >"$RECIPE_STOP" && tell_moment "$RECIPE_STOP.term"; } 2>/dev/null ||
        scancel --signal=TERM "$SLURM_JOB_ID" 2>/dev/null
}

# tell_moment FILE: the second at which the watchers of all ranks signal; each has seen the file by then.
tell_moment() { echo "$(($(date +%s) + 4))" >"$1.new" && mv -f "$1.new" "$1"; }

# job_state: prints Slurm's word for this job, the time left and the reason it gives; nothing where it does not answer.
job_state() {
    [ -n "${SLURM_JOB_ID:-}" ] || return 0
    timeout 10 squeue --noheader --jobs "$SLURM_JOB_ID" --format "%T %L %r" 2>/dev/null || true
}

# ask_state [TIMES]: sets the caller's state, left and why; asks again where nothing came: a second signal may have cut the
# first answer short.
ask_state() {
    local tries most=${1:-3} answer=""
    for ((tries = 1; tries <= most; tries++)); do
        answer=$(job_state) || true
        if [ -n "$answer" ] || [ -z "${SLURM_JOB_ID:-}" ] || [ "$tries" -eq "$most" ]; then break; fi
        sleep "0.$tries"
    done
    state="" left="" why=""
    read -r state left why <<<"$answer" || true
    job_said=$answer
    # A Slurm that does not answer says nothing of a cancelled job: the clock alone is asked then.
    if [ -z "$state" ] && [ -n "${SLURM_JOB_ID:-}" ]; then state=RUNNING; fi
}

# in_notice LEFT: is that time, as squeue writes it (1-02:03:04), within the notice; Slurm's signal is up to 60 s early.
in_notice() {
    local seconds=0 part rest=${1:-}
    case "$rest" in
        "" | *[!0-9:-]*)
            [ -n "${SLURM_JOB_END_TIME:-}" ] || return 1
            seconds=$((SLURM_JOB_END_TIME - $(date +%s)))
            ;;
        *-*) return 1 ;; # days
        *)
            while [ -n "$rest" ]; do
                part=${rest%%:*}
                seconds=$((seconds * 60 + 10#$part))
                case "$rest" in *:*) rest=${rest#*:} ;; *) rest="" ;; esac
            done
            ;;
    esac
    [ "$seconds" -le $((job_notice + 75)) ]
}

# near_limit: is the time limit of this job near?
near_limit() {
    local state why left
    ask_state
    case "$state $why" in *TimeLimit*) return 0 ;; esac
    in_notice "$left"
}

write_record() { # write_record [ending]
    local ending=${1:+true}
    local draft=$job_folder/.$job_id.json.$$ log=${SLURM_JOB_NAME:-}-$job_id.log
    [ -f "$log" ] || log=""
    if ! { mkdir -p "$job_folder" && print_record "$log" >"$draft" && mv -f "$draft" "$job_folder/$job_id.json"; }; then
        rm -f "$draft" 2>/dev/null || true
        # The log may lie on the same full disk; the exit code is what Slurm keeps then.
        echo "recipe: the record $job_folder/$job_id.json could not be written (exit code $job_code ${job_reason:-})" >&2 || true
    fi
}

print_record() {
    printf '{"schema": 1, "job": %s, "name": %s, "purpose": %s, "script": %s, "exit_code": %d, "reason": %s, ' \
        "$(json_text "$job_id")" "$(json_text "${SLURM_JOB_NAME:-}")" "$(json_text "$job_purpose")" \
        "$(json_text "$job_script")" "$job_code" "$(json_text "$job_reason")"
    printf '"started": %d, "ended": %d, "nodes": %s, "shape": %s, "log": %s, "state": %s, "ending": %s}\n' \
        "$job_started" "$(date +%s)" "$(json_text "${SLURM_JOB_NODELIST:-}")" \
        "$(if [ -n "$job_shape" ]; then json_text "$job_shape"; else echo null; fi)" "$(json_text "$1")" \
        "$(json_text "$job_said")" "${ending:-false}"
}

json_text() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

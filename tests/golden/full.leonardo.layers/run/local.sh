# Folders of a job on its nodes: each rank makes them, and they are removed after the job, also after a cancelled one.
# On the first node the job script does it (record.sh); on each of the others a task of its own step, which lasts as long
# as the job: no new step can be started in a job that is cancelled.
# shellcheck shell=bash

# make_local_folders: for this user alone; engine.sh must be sourced.
make_local_folders() {
    local folder
    name_local_folders
    for folder in "${local_folders[@]}"; do
        private_folder "$folder" 'node-local folder' 'submit the job again' || fail 'a node-local folder cannot be made'
    done
}

# remove_local_folders FOLDER...: only those that are this user's, below folders that no one else can change.
remove_local_folders() {
    local folder
    for folder; do
        if [ ! -d "$folder" ] || [ -L "$folder" ]; then continue; fi
        if bash run/local.sh check "$folder" >/dev/null 2>&1; then rm -rf -- "$folder"; fi
    done
}

# check_local_folders FOLDER: in a process of its own, which an unsafe folder ends.
check_local_folders() {
    . ./engine.sh
    private_folder "$1" 'node-local folder' ''
}

# hold_local_folders FOLDER...: one task a node; removes them when the job script ends, which closes its input, or when it
# is told to end. Programs that still save may make them again for some seconds.
hold_local_folders() {
    local told="" turn code
    trap 'told=yes' TERM INT HUP
    while [ -z "$told" ]; do
        code=0
        # A signal does not end `read`: it is seen at the next turn.
        IFS= read -r -t 2 _ || code=$?
        # More than 128: nothing has come; else its input is closed.
        if [ "$code" -ne 0 ] && [ "$code" -le 128 ]; then break; fi
    done
    for ((turn = 0; turn < 20; turn++)); do
        remove_local_folders "$@"
        if [ -z "$told" ]; then break; fi
        code=0
        IFS= read -r -t 0.5 _ || code=$?
        if [ "$code" -ne 0 ] && [ "$code" -le 128 ]; then told=""; fi
    done
    exit 0
}

# name_local_folders: sets the folders of this job, and those of them that are removed after it.
# shellcheck disable=SC2034 # record.sh uses them too
name_local_folders() {
    local_folders=()
    removed_folders=()
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then "$1_local_folders" "${@:2}"; fi

# Variables of a job: the user's win over those of run/site.env, and both over the site's; sourced by job.sh.
# shellcheck shell=bash
declare -A own_values=()
expected_variables=(--expect-variable PYTHONNOUSERSITE=1)

# read_settings FILE: exports the lines NAME=VALUE of a file, as data; a variable that is set already stays as it is.
read_settings() {
    local file=$1 line name reserved number=0
    if [ ! -e "$file" ] && [ ! -L "$file" ]; then return 0; fi
    if [ -L "$file" ] || [ ! -f "$file" ]; then fail "$file is not a file: write the lines NAME=VALUE into one"; fi
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        if [ "$number" -gt 1000 ] || [ "${#line}" -gt 8192 ]; then fail "$file: line $number is too much: 1000 lines of 8192 characters"; fi
        line=${line%$'\r'}
        case $line in "" | "#"*) continue ;; esac
        name=${line%%=*}
        if [ "$name" = "$line" ] || ! [[ $name =~ ^([A-Z][A-Za-z0-9_]*|(http|https|ftp|all|no|rsync)_proxy)$ ]]; then
            fail "$file: line $number is not NAME=VALUE with a name that begins with a capital letter"
        fi
        find_reserved "$name"
        if [ -n "$reserved" ]; then fail "$file: line $number: $name cannot be set there: $reserved"; fi
        if [[ ${line#*=} == *[[:cntrl:]]* ]]; then fail "$file: line $number: the value of $name has a control character"; fi
        if [ -z "${!name+set}" ]; then export "$name=${line#*=}"; fi
    done <"$file"
}

# keep_own NAME...: remembers the user's values before modules change them. What a job's own scripts have set is not the
# user's: a job that is submitted by another one inherits it.
keep_own() {
    local name
    for name; do
        case $name in SLURM_*) continue ;; esac
        case $'\n'${RECIPE_SITE_VARIABLES:-}$'\n' in *$'\n'"$name=${!name-}"$'\n'*) continue ;; esac
        if [ -n "${!name+set}" ]; then own_values[$name]=${!name}; fi
    done
    RECIPE_SITE_VARIABLES=""
    export RECIPE_SITE_VARIABLES
}

# site_variable NAME VALUE: exports the user's value, or the site's; the probe looks for it in every rank.
site_variable() {
    if [ -n "${own_values[$1]+set}" ]; then
        export "$1=${own_values[$1]}"
    else
        export "$1=$2"
        RECIPE_SITE_VARIABLES+="$1=$2"$'\n'
    fi
    # Those for launchers and runtimes may be changed before the image sees them.
    case $1 in SLURM_* | APPTAINERENV_* | SINGULARITYENV_*) ;; *) expected_variables+=(--expect-variable "$1=${!1}") ;; esac
}

# find_plugin: sets NCCL_NET_PLUGIN to the user's or a module's; container.sh binds its folder where it is a file.
find_plugin() {
    export NCCL_NET_PLUGIN="${own_values[NCCL_NET_PLUGIN]-${NCCL_NET_PLUGIN-}}"
    if [ -f "$NCCL_NET_PLUGIN" ]; then
        NCCL_NET_PLUGIN=$(readlink -f -- "$NCCL_NET_PLUGIN") # a link may lead out of its folder
    elif [ -z "${own_values[NCCL_NET_PLUGIN]+set}" ]; then
        echo "recipe: warning: no module has set NCCL_NET_PLUGIN to a file: NCCL and RCCL have no plug-in between nodes" >&2
    fi
}

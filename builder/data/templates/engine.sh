# What every build step needs, sourced by the step scripts; nothing here is specific to a recipe.
# RECIPE_FRESH=yes has Docker make every layer anew. Of layers: RECIPE_FETCH=yes only gets what they are made of into the
# cache, RECIPE_OFFLINE=yes then asks no server.
# Respected: RECIPE_TMPDIR, RECIPE_CACHE_DIR, RECIPE_UV, TMPDIR, PIP_*, UV_*, SSL_CERT_*, *_proxy, SOURCE_DATE_EPOCH.
# shellcheck shell=bash disable=SC2034
build_binds=()
pack_options=()

fail() {
    event "{\"event\": \"error\", \"message\": $(json_word "$*"), \"fix\": \"\"}"
    printf 'recipe: error: %s\n' "$*" >&2
    failed_because=$*
    exit 1
}

# event JSON: a line for the program that runs this script; RECIPE_EVENTS names its file, by hand there is none.
event() {
    if [ -n "${RECIPE_EVENTS:-}" ] && [ -f "$RECIPE_EVENTS" ] && [ ! -L "$RECIPE_EVENTS" ]; then
        printf '%s\n' "$1" >>"$RECIPE_EVENTS" || true
    fi
}

json_word() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# for_processor NAME: stops where the machine has other processors than the nodes that the image is for.
for_processor() {
    local here
    here=$(uname -m)
    [ "$here" = "$1" ] || fail "the image is for $1 processors, and this machine has $here: build on one of $1, or in a job"
}

# answer FILE: reports what the image has answered (verify.py), where it has. What is in the image may have made the file.
answer() {
    if [ -f "$1" ] && [ ! -L "$1" ]; then
        event "{\"event\": \"answer\", \"answer\": $(head -c 32768 -- "$1" | tr -d '\n\000')}"
    fi
}

# docker_answer TAG: gets the file that verify.py has left in the image that Docker made.
docker_answer() {
    local container
    container=$(docker create "$1" true 2>/dev/null) || return 0
    mkdir -p "$work/answer"
    docker cp "$container:/opt/recipe/answer.json" - 2>/dev/null | tar -xO 2>/dev/null | head -c 32768 >"$work/answer/answer.json" || true
    docker rm "$container" >/dev/null 2>&1 || true
}

# use_module ARGUMENTS: the module command, also in a shell that is no login shell.
use_module() {
    local file
    if ! type module >/dev/null 2>&1; then
        for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash; do
            # shellcheck disable=SC1090
            if [ -r "$file" ]; then . "$file" && break; fi
        done
    fi
    type module >/dev/null 2>&1 || fail "there is no module command here: is this a node of the site?"
    module "$@" || fail "module $* failed"
}

# pick_runtime FIRST SECOND: sets $runtime and $flavour.
pick_runtime() {
    runtime=$(command -v "$1" || command -v "$2") || fail "neither $1 nor $2 is installed"
    case "$runtime" in
        */apptainer) flavour=APPTAINER ;;
        # The name says little here: Apptainer installs itself under it too.
        *) case "$("$runtime" --version)" in apptainer*) flavour=APPTAINER ;; *) flavour=SINGULARITY ;; esac ;;
    esac
}

# need_proot: SingularityCE builds a definition file without privileges where it finds proot on PATH; install.sh hears of it.
need_proot() {
    command -v proot >/dev/null || fail "proot is not installed, or its module is not loaded: this site builds definition files with it"
    export "${flavour}ENV_RECIPE_PROOT=yes"
}

# What may be the Python for the programs that travel with the plan: 3.10 or newer.
pythons=("${RECIPE_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python3.10)

# pick_python: sets $python.
pick_python() {
    local name
    for name in "${pythons[@]}"; do
        python=$(command -v "${name:-none}") || continue
        if "$python" -E -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then return 0; fi
    done
    fail "there is no Python 3.10 or newer here: load its module, or set RECIPE_PYTHON"
}

# default_proxy NAME VALUE: the site's proxy, unless the environment has its own.
default_proxy() {
    if [ -z "${!1:-}" ]; then export "$1=$2"; fi
}

# login_for HOST site|recipe: the login in the engines' variables names no host. It is for the registry of the site's or
# the user's base image, or for the one that RECIPE_REGISTRY names; one that a recipe chooses does not see it.
login_for() {
    local host=${RECIPE_REGISTRY:-}
    if [ "$host" = "$1" ] || [ "$host:$2" = :site ]; then return 0; fi
    if [ -n "${APPTAINER_DOCKER_PASSWORD:-}${SINGULARITY_DOCKER_PASSWORD:-}" ]; then
        echo "recipe: note: the login in the environment is not shown to $1: set RECIPE_REGISTRY=$1 where it is for it"
    fi
    unset APPTAINER_DOCKER_USERNAME APPTAINER_DOCKER_PASSWORD SINGULARITY_DOCKER_USERNAME SINGULARITY_DOCKER_PASSWORD
}

# plain_python: variables for the Pythons of this machine (PYTHONHOME, PYTHONINSPECT ...) are not for those of an image.
plain_python() {
    local name
    for name in "${!PYTHON@}" "${!APPTAINERENV_PYTHON@}" "${!SINGULARITYENV_PYTHON@}"; do
        case ${name#*ENV_} in
            PYTHONNOUSERSITE | PYTHONUSERBASE | PYTHONUNBUFFERED | PYTHONFAULTHANDLER | PYTHONHASHSEED | PYTHONDONTWRITEBYTECODE) ;;
            *) unset "$name" ;;
        esac
    done
}

# image_alone: a test judges the image, and nothing of this machine: variables that change what Python imports, and those of
# the engines that change PATH, packages or files of the image. What a recipe sets for its image is set after this.
image_alone() {
    local name bind engine binds=()
    for name in "${!PYTHON@}" "${!APPTAINERENV_@}" "${!SINGULARITYENV_@}"; do
        case ${name#*ENV_} in
            PYTHONNOUSERSITE | PYTHONUNBUFFERED | PYTHONFAULTHANDLER | PYTHONHASHSEED | PYTHONDONTWRITEBYTECODE) ;;
            PYTHON* | PATH | PREPEND_PATH | APPEND_PATH | VIRTUAL_ENV | CONDA_PREFIX) unset "$name" ;;
        esac
    done
    for engine in APPTAINER SINGULARITY; do unset "${engine}_ENV" "${engine}_ENV_FILE" "${engine}_OVERLAY"; done
    for name in RECIPE_BINDS CW_EXTRA_BIND_MOUNTS {APPTAINER,SINGULARITY}_{BIND,BINDPATH}; do
        IFS=, read -r -a binds <<<"${!name:-}"
        for bind in "${binds[@]}"; do
            case "$bind" in *:*) bind=${bind#*:} ;; esac
            case "${bind%%:*}/" in
                / | /opt/ | /opt/env/* | /opt/recipe/* | /usr/ | /usr/bin/* | /usr/lib/ | /usr/lib/python3* | /usr/local/ | \
                    /usr/local/bin/* | /usr/local/lib/ | /usr/local/lib/python3* | */site-packages/* | */dist-packages/*)
                    fail "$name puts '${bind%%:*}' of this machine in the place of the image's: a test is of the image alone, unset it"
                    ;;
            esac
        done
    done
}

# Binds that are meant for running break a build: their targets are not in the image yet.
clear_binds() {
    unset SINGULARITY_BIND SINGULARITY_BINDPATH APPTAINER_BIND APPTAINER_BINDPATH \
        SINGULARITY_CONTAINLIBS APPTAINER_CONTAINLIBS SINGULARITY_MOUNT APPTAINER_MOUNT
}

remove_work() {
    answer "$work/answer/answer.json"
    if [ -n "${offering:-}" ]; then kill "$offering" 2>/dev/null || true; fi
    # What is not whole stays under no name; this runs in the plan folder.
    if ! rm -rf "${work:?}" inputs.recipe ./*.part ./*.part.sif 2>/dev/null; then
        chmod -R u+rwX "$work" 2>/dev/null || true
        rm -rf "$work"
    fi
}

# private_folder PATH WHAT INSTEAD [shared]: makes a folder for this user alone, or checks one that exists, as
# layering/private_folders.py does: no one else can write there, or change what the path leads to. A shared one may be sticky (/tmp).
# Sets $place, the path without links. False where it cannot be made; several processes may do this at once.
private_folder() {
    local asked=$1 what=$2 instead=$3 shared=${4:-} at="" rest why="" number owner mode parts=(/) states=() links=no system
    case "$asked" in /*) ;; *) asked=$PWD/$asked ;; esac
    rest=${asked#/}/
    while [ -n "$rest" ]; do
        at=$at/${rest%%/*} rest=${rest#*/}
        if [ ! -L "$at" ]; then continue; fi
        links=yes
        # In a user namespace root's folders may have another number.
        mapfile -t states < <(stat -c %u -- / "$at")
        owner=${states[1]:-}
        case " 0 $EUID ${states[0]:-0} " in
            *" ${owner:-0} "*) ;;
            *) fail "the $what $1 is not safe: $at is a link of uid $owner; $instead" ;;
        esac
    done
    # What no other user can change from here on; a link that is changed later leads nowhere else.
    place=$asked
    case "$links $asked/" in
        yes* | *//* | */./* | */../*) place=$(readlink -m -- "$asked") && [ -n "$place" ] || return 1 ;;
    esac
    at="" rest=${place#/}/
    while [ -n "${rest#/}" ]; do
        at=$at/${rest%%/*} rest=${rest#*/}
        [ -d "$at" ] || mkdir -m 700 -- "$at" 2>/dev/null || [ -d "$at" ] || return 1
        parts+=("$at")
    done
    mapfile -t states < <(stat -c '%u %a' -- "${parts[@]}")
    [ "${#states[@]}" -eq "${#parts[@]}" ] || return 1
    system=" 0 $EUID ${states[0]% *} "
    for number in "${!parts[@]}"; do
        at=${parts[number]} owner=${states[number]% *} mode=$((8#${states[number]#* }))
        local sticky=$((mode & 8#1000)) foreign=$((mode & 8#002)) allowed=$system
        if [ "$at" = "$place" ]; then
            foreign=$((mode & 8#022))
            if [ -z "$shared" ] || [ "$sticky" -eq 0 ]; then allowed=" $EUID "; fi
            if [ -z "$shared" ]; then sticky=0; fi
        fi
        case "$allowed" in
            *" $owner "*) if [ "$foreign" -eq 0 ] || [ "$sticky" -ne 0 ]; then continue; fi ;;
            *) why="belongs to $(stat -c %U -- "$at") (uid $owner)" ;;
        esac
        if [ -z "$why" ]; then
            why="can be written by others (mode ${states[number]#* })"
            if [ "$owner" = "$EUID" ]; then instead="run chmod -R go-w $at, or $instead"; fi
        fi
        fail "the $what $1 is not safe: $at $why; $instead"
    done
}

# temporary_folder DEFAULT CACHE: sets $work, which is removed at the end, and the engines' own variables.
temporary_folder() {
    local parent=${RECIPE_TMPDIR:-${1:-${TMPDIR:-/tmp}}} place
    private_folder "$parent" "temporary folder" "set RECIPE_TMPDIR to a folder of your own" shared ||
        fail "the temporary folder $parent cannot be made: give another one by RECIPE_TMPDIR"
    work=$(mktemp -d "$place/recipe-XXXXXXXX") || fail "the temporary folder $parent cannot be written to"
    trap remove_work EXIT
    export TMPDIR="$work" APPTAINER_TMPDIR="$work" SINGULARITY_TMPDIR="$work"
    if [ -n "${2:-}" ] && [ -z "${APPTAINER_CACHEDIR:+${SINGULARITY_CACHEDIR:-}}" ]; then
        local engine_cache=$2
        # Of a job nothing is left on its node.
        if [ "${ENVIRONMENT:-}" = BATCH ] && is_local "$2"; then engine_cache=$work/engine-cache; fi
        # Where it cannot be made this is no node of the site: the engine takes its own place.
        if private_folder "$engine_cache" "engine's cache folder" "set ${flavour:-APPTAINER}_CACHEDIR to a folder of your own"; then
            export APPTAINER_CACHEDIR="${APPTAINER_CACHEDIR:-$place}" SINGULARITY_CACHEDIR="${SINGULARITY_CACHEDIR:-$place}"
        fi
    fi
}

# is_local PATH: whether it is, or would be made, on a file system of this machine alone.
is_local() {
    local at=$1
    while [ ! -e "$at" ] && [ "$at" != / ] && [ "$at" != . ]; do at=$(dirname -- "$at"); done
    case $(stat -f -c %T -- "$at" 2>/dev/null) in tmpfs | ramfs | ext* | xfs | btrfs | zfs | overlay*) return 0 ;; esac
    return 1
}

# own_cache: sets $cache to the user's cache folder, or to the temporary one where none can be made.
own_cache() {
    local above=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} instead="set RECIPE_CACHE_DIR to a folder of your own" place
    cache=${RECIPE_CACHE_DIR:-${above:+$above/recipe}}
    if [ -z "$cache" ] || ! private_folder "$cache" "cache folder" "$instead" ||
        ! private_folder "$cache/uv" "cache folder" "$instead"; then
        cache=$work
    fi
}

# The program that travels with the plan; where recipe runs the step its own: the same, compiled once.
layering=(-E -B layering) # -E: variables are for other Pythons of this machine
if [ -n "${RECIPE_LAYERING:-}" ]; then layering=("$RECIPE_LAYERING"); fi

# one_time BASE|ARCHIVE: sets $epoch, the time that all new files of the image get (docs/packing.md, "The same bytes"),
# and $date. The program that says it stays to settle the image: it ends with this script, if nothing is to settle.
one_time() {
    local name
    plain_python
    epoch="" date="" # a Python that ends at once leaves nothing to read from
    "$runtime" build --help >"$work/options" 2>/dev/null & # packing reads it
    local asked=$!
    for name in "${pythons[@]}"; do
        python=$(command -v "${name:-none}") || continue
        coproc settler { exec "$python" "${layering[@]}" time "$1" --settle 2>"$work/settler"; }
        settling=$!
        if read -r epoch date 2>/dev/null <&"${settler[0]:-}" || wait "$settling"; then break; fi
    done
    wait "$asked" || true
    if [ -n "$epoch" ]; then
        export SOURCE_DATE_EPOCH="$epoch"
    else
        echo "recipe: note: another build of this gives other bytes: for the same it takes Python 3.10 and mksquashfs 4.4"
    fi
}

# packing COMPRESSION [ARCHIVE]: sets $pack_options; older engines cannot be told. ARCHIVE is what is converted: an engine
# writes the date into its labels, so that file is left out and ours put in.
packing() {
    local words="-all-root -no-xattrs"
    case "$(<"$work/options")" in *--mksquashfs-args*) ;; *) return 0 ;; esac
    # zstd packs five times faster than gzip and starts faster (docs/packing.md).
    if [ "$1" = zstd ]; then words="$words -comp zstd -Xcompression-level 3"; fi
    if [ -n "$epoch" ] && [ -n "${2:-}" ]; then
        mkdir -p inputs.recipe
        "$python" "${layering[@]}" labels "$2" inputs.recipe/labels.json --time "$epoch"
        echo .singularity.d/labels.json >inputs.recipe/left-out
        echo "/.singularity.d/labels.json f 644 0 0 cat inputs.recipe/labels.json" >inputs.recipe/put-in
        words="$words -ef inputs.recipe/left-out -pf inputs.recipe/put-in"
    fi
    pack_options=(--mksquashfs-args "$words")
}

# dated DEFINITION: sets $definition to a copy in which the label with the date of the build is always the same.
dated() {
    definition=$1
    if [ -n "$epoch" ]; then
        definition=$work/image.def
        printf '%s\n\n%%labels\n    org.label-schema.build-date %s\n' "$(<"$1")" "$date" >"$definition"
    fi
}

# settle IMAGE: takes out of it what differs from build to build, a few hundred bytes: the disk gets the rest meanwhile.
settle() {
    [ -n "$epoch" ] || return 0
    sync -- "$1" 2>/dev/null &
    echo "$1" >&"${settler[1]}"
    if ! wait "$settling"; then
        cat "$work/settler" >&2
        exit 1
    fi
}

# setting NAME VALUE: a variable for the build inside the image, never stored in it.
setting() {
    [ -n "$2" ] || return 0
    local bare=$2
    case "$2" in
        *://*@* | *://*/t/*) bare=$(sed -E -e 's#://[^/ ,]*@#://#g' -e ':again; s#(://[^ ,]*)/t/[^/?\# ,]+#\1#; t again' <<<"$2") ;;
    esac
    # What is downloaded by others than uv, distribution packages and conda's, has to get through.
    case "$1" in *_proxy | *_PROXY) bare=$2 ;; esac
    printf 'export %s=%q\n' "$1" "$2" >>"$work/settings"
    printf 'export %s=%q\n' "$1" "$bare" >>"$plain"
    if [ "$bare" != "$2" ]; then logins=yes; fi
    all_settings+=("$1=$2")
}

# local_folder PATH: sets $inside to where a folder of this machine is seen by the build; empty when it is none.
local_folder() {
    local path=${1#file://}
    inside=""
    case "$path" in /*) ;; *) return 0 ;; esac
    [ -d "$path" ] || return 0
    inside="/mnt/$folders"
    if [ "$1" != "$path" ]; then inside="file://$inside"; fi
    mkdir -p "$inputs/$folders"
    if [ "${copy_inputs:-no}" = yes ]; then
        cp -rl "$path/." "$inputs/$folders/" 2>/dev/null || cp -r "$path/." "$inputs/$folders/"
    else
        build_binds+=(--bind "$path:/mnt/$folders:ro")
    fi
    folders=$((folders + 1))
}

# places VALUE: sets $seen to a list of indexes or folders with the local ones as the build sees them.
places() {
    local item
    seen=""
    for item in $1; do
        local_folder "$item"
        seen="$seen${seen:+ }${inside:-$item}"
    done
}

# locked_packages: copies of locked conda packages of this machine's own channels, for the build to see. Nothing is
# copied before its sha256 was compared, nothing goes outside the inputs, and a link in the way is replaced.
locked_packages() {
    local digest target source
    [ -f image/conda-local.txt ] || return 0
    while IFS=$'\t' read -r digest target source; do
        case "$target" in
            /* | */*/* | ../* | */.. | *[!A-Za-z0-9._+!%/-]*) fail "image/conda-local.txt names no file of a channel: $target" ;;
        esac
        case "$source" in /*) ;; *) fail "image/conda-local.txt names no file of this machine: $source" ;; esac
        same_package "$source" "$digest" "$source"
        mkdir -p "$inputs/conda/${target%/*}"
        cp --remove-destination -- "$source" "$inputs/conda/$target" || fail "the locked package $source cannot be read"
        same_package "$inputs/conda/$target" "$digest" "$source" # it may have changed meanwhile
    done <image/conda-local.txt
}

# same_package FILE SHA256 NAME: stops where a file is not the package that was locked.
same_package() {
    local found
    found=$(sha256sum <"$1") || fail "the locked package $3 cannot be read"
    [ "${found%% *}" = "$2" ] || fail "the package $3 is not the one that was locked: it has changed since"
}

# same_file PATH SIZE SHA256: stops where a base image is not the one that was locked.
same_file() {
    local found
    found=$(stat -Lc %s -- "$1") || fail "the locked base image $1 cannot be read"
    if [ "$found" = "$2" ]; then found=$(sha256sum <"$1"); fi
    [ "${found%% *}" = "$3" ] || fail "the base image $1 is not the one that was locked: it has changed since"
}

# both PIP_NAME VALUE UV_NAME VALUE: a list of places for pip and for uv, which takes pip's where it has none of its own.
# uv separates folders by commas, pip by spaces.
both() {
    places "$2"
    setting "$1" "$seen"
    if [ -n "$4" ]; then places "${4//,/ }"; fi
    if [ "$3" = UV_FIND_LINKS ]; then seen=${seen// /,}; fi
    setting "$3" "$seen"
}

# collect_certificates FILE: writes what the clients of this machine trust (layering/certificates.py); fails without any.
collect_certificates() {
    local name file=${SSL_CERT_FILE:-${PIP_CERT:-${REQUESTS_CA_BUNDLE:-}}}
    local -a names=()
    IFS=: read -r -a names <<<"${SSL_CERT_DIR:-}"
    if [ -n "$file" ] && [ -d "$file" ]; then names+=("$file") file=""; fi
    if [ -z "$file" ] && [ "${#names[@]}" -eq 0 ]; then
        name=${UV_SYSTEM_CERTS:-${UV_NATIVE_TLS:-}}
        case "${name,,}" in 0 | f | n | no | off | false) return 1 ;; esac
        for name in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem \
            /etc/pki/tls/cacert.pem /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/cert.pem; do
            if [ -f "$name" ] && [ -r "$name" ] && [ -s "$name" ]; then file=$name && break; fi
        done
    fi
    if [ -n "$file" ] && [ -f "$file" ]; then cat -- "$file" >"$1" || return 1; fi
    for name in "${names[@]}"; do
        # Only certificates: a folder may have keys too.
        sed -n '/^-----BEGIN CERTIFICATE-----/,/^-----END CERTIFICATE-----/p' "$name"/* >>"$1" 2>/dev/null || true
    done
    [ -s "$1" ]
}

# package_settings: indexes, mirrors, certificates and wheel folders of this machine, for pip and uv in the build.
# pip's own variables are given to uv where uv's are not set. Sets $inputs (seen as /mnt in the build) and $settings.
package_settings() {
    folders=0
    inputs=${inputs:-$work/inputs}
    settings=$work/settings
    plain=$work/plain
    all_settings=()
    logins=no
    mkdir -p "$inputs"
    (umask 077 && : >"$settings" && : >"$plain")
    locked_packages
    if collect_certificates "$inputs/ca.pem"; then
        setting SSL_CERT_FILE /mnt/ca.pem
        setting PIP_CERT /mnt/ca.pem
        setting REQUESTS_CA_BUNDLE /mnt/ca.pem
    fi
    both PIP_INDEX_URL "${PIP_INDEX_URL:-}" UV_DEFAULT_INDEX "${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-}}"
    both PIP_EXTRA_INDEX_URL "${PIP_EXTRA_INDEX_URL:-}" UV_INDEX "${UV_INDEX:-${UV_EXTRA_INDEX_URL:-}}"
    both PIP_FIND_LINKS "${PIP_FIND_LINKS:-}" UV_FIND_LINKS "${UV_FIND_LINKS:-}"
    setting PIP_TRUSTED_HOST "${PIP_TRUSTED_HOST:-}"
    setting UV_INSECURE_HOST "${UV_INSECURE_HOST:-${PIP_TRUSTED_HOST:-}}"
    setting PIP_DEFAULT_TIMEOUT "${PIP_DEFAULT_TIMEOUT:-}"
    setting UV_HTTP_TIMEOUT "${UV_HTTP_TIMEOUT:-${PIP_DEFAULT_TIMEOUT:-}}"
    for name in UV_INDEX_STRATEGY UV_EXCLUDE_NEWER UV_PRERELEASE; do
        setting "$name" "${!name:-}"
    done
    setting SOURCE_DATE_EPOCH "${SOURCE_DATE_EPOCH:-}"
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY all_proxy; do
        setting "$name" "${!name:-}"
    done
}

# inside_build: binds and variables for a build by Apptainer or Singularity. Nothing in there can write what another
# build reads: uv has a cache of its own, and what was downloaded before is read-only. It sees no login (offer_wheels).
inside_build() {
    plain_python
    own_cache
    package_settings
    mkdir -p "$inputs/cache" "$inputs/given" "$inputs/uv" "$inputs/answer" "$work/uv" "$work/given" "$work/answer"
    mkdir -m 1777 "$work/tmp" "$work/vartmp" "$work/shm"
    mkfifo "$work/given/ask" "$work/given/answer"
    # An engine shows this machine's /tmp and /dev/shm, where the user has files and other builds their caches.
    build_binds=(--bind "$work/tmp:/tmp" --bind "$work/vartmp:/var/tmp" --bind "$work/shm:/dev/shm" "${build_binds[@]}")
    build_binds=(--bind "$inputs:/mnt:ro" --bind "$work/uv:/mnt/cache" --bind "$work/given:/mnt/given:ro" "${build_binds[@]}")
    build_binds+=(--bind "$work/answer:/mnt/answer")
    if [ -d "$cache/uv" ]; then build_binds+=(--bind "$cache/uv:/mnt/uv:ro"); fi
    cp "$plain" "$inputs/settings"
    if [ "$logins" = yes ]; then mkdir -m 700 "$work/given.private" && mv "$settings" "$work/given.private/settings"; fi
    export "${flavour}ENV_RECIPE_SETTINGS=/mnt/settings" "${flavour}ENV_UV_CACHE_DIR=/mnt/cache"
    export "${flavour}ENV_RECIPE_ANSWER=/mnt/answer/answer.json"
    if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then export "${flavour}ENV_SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"; fi
}

# offer_wheels: this machine's uv downloads what the build asks for, when it has its Python; it ends with this script.
offer_wheels() {
    local name word="" alive said
    mkfifo "$work/alive"
    for name in "${pythons[@]}"; do
        python=$(command -v "${name:-none}") || continue
        "$python" -E -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
        exec {said}< <(exec "$python" "${layering[@]}" offer image --given "$work/given" <"$work/alive")
        offering=$!
        exec {alive}>"$work/alive"
        if read -r word <&"$said"; then return 0; fi # it says that it is there, or ends
        exec {alive}>&-
    done
    rm -f "$work/given/ask"
    if [ "$logins" = yes ]; then echo "recipe: note: without Python 3.10 here the build gets no login of an index"; fi
}

# own_caches: for programs that enter containers by themselves and show them the user's variables and folders: packages
# that were downloaded or built lie in a cache that other builds do not read.
own_caches() {
    unset CONDA_PKGS_DIRS PIP_CACHE_DIR UV_CACHE_DIR
    export PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
}

# through_environment: the same for a program that enters containers by itself (cotainr) and takes no binds.
through_environment() {
    local item binds
    package_settings
    # The user's own files in this machine's /dev/shm are not for the recipe's packages.
    mkdir -m 1777 "$work/shm"
    binds=$work/shm:/dev/shm
    if [ "${#all_settings[@]}" -gt 0 ]; then
        for item in "${all_settings[@]}"; do export "${flavour}ENV_$item"; done
        # /mnt is in every image.
        binds=$binds,$inputs:/mnt
        for item in "${build_binds[@]}"; do
            if [ "$item" != --bind ]; then binds=$binds,$item; fi
        done
    fi
    export "${flavour}_BIND=$binds"
}

# results_folder DEFAULT [SHAPE]: sets $results, the folder for results, below RECIPE_RESULTS where that is set.
# It must be writable; stands before run/container.sh, which binds RECIPE_RESULTS under its whole name.
results_folder() {
    local draft top=${RECIPE_RESULTS:-$1}
    case "$top" in /* | .) ;; *) top=$PWD/$top ;; esac
    if [ -n "${RECIPE_RESULTS:-}" ]; then export RECIPE_RESULTS="$top"; fi
    results=$top${2:+/$2}
    if ! { mkdir -p "$results" && draft=$(mktemp "$results/.draft-XXXXXX"); } 2>/dev/null; then
        fail "results cannot be written to '$results': name another folder by RECIPE_RESULTS=/path"
    fi
    rm -f "$draft"
}

# leave_results ANSWER REASON NAME...: a failed result for each that the smoke test has not left in $results; ANSWER is the
# expected one, in JSON. It says that nothing was run.
leave_results() {
    local name workload reason answer=$1
    reason=$(json_word "$2")
    for name in "${@:3}"; do
        if [ -s "$results/$name" ]; then continue; fi
        workload=${name#smoke-}
        case $name in
            verify.json) printf '{"expected": %s, "faults": [%s], "found": {}, "not_run": true}\n' "$answer" "$reason" ;;
            *) printf '{"schema": 1, "workload": "%s", "error": %s, "not_run": true}\n' "${workload%.json}" "$reason" ;;
        esac >"$results/$name" || true
    done
}

# audit_image PART: reads which GPUs the new packages can use (audit.json). Wrong ones end the script with exit code 6; the
# draft keeps the name FINAL.failed, and gpu-audit.json says why.
audit_image() {
    local name
    for name in "${pythons[@]}"; do
        python=$(command -v "${name:-none}") || continue
        "$python" -E -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
        "$python" "${layering[@]}" audit audit.json "$1" || exit
        return 0
    done
    echo "recipe: note: the packages are not audited for this GPU: that takes Python 3.10 here"
}

# put_in_place PART FINAL: only a whole product gets its name.
put_in_place() {
    [ -s "$1" ] || fail "the engine ended without an error and wrote no image"
    event "{\"event\": \"whole\", \"image\": $(json_word "$1")}" # recipe reads it meanwhile
    echo "recipe: $1 is whole and goes to the disk"
    sync -- "$1" 2>/dev/null || true
    mv -f -- "$1" "$2"
}

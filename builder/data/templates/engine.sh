# What every build step needs, sourced by the step scripts; nothing here is specific to a recipe.
# Respected: RECIPE_TMPDIR, RECIPE_CACHE_DIR, TMPDIR, PIP_*, UV_*, SSL_CERT_FILE, *_proxy, SOURCE_DATE_EPOCH.
# shellcheck shell=bash disable=SC2034
build_binds=()
pack_options=()

fail() {
    printf 'recipe: error: %s\n' "$*" >&2
    exit 1
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
    case "$("$runtime" --version)" in
        apptainer*) flavour=APPTAINER ;;
        *) flavour=SINGULARITY ;;
    esac
}

# default_proxy NAME VALUE: the site's proxy, unless the environment has its own.
default_proxy() {
    if [ -z "${!1:-}" ]; then export "$1=$2"; fi
}

# Binds that are meant for running break a build: their targets are not in the image yet.
clear_binds() {
    unset SINGULARITY_BIND SINGULARITY_BINDPATH APPTAINER_BIND APPTAINER_BINDPATH \
        SINGULARITY_CONTAINLIBS APPTAINER_CONTAINLIBS SINGULARITY_MOUNT APPTAINER_MOUNT
}

remove_work() {
    if [ -n "${work:-}" ] && [ -d "$work" ]; then
        chmod -R u+rwX "$work" 2>/dev/null || true
        rm -rf "$work"
    fi
    # What is not whole stays under no name; this runs in the plan folder.
    rm -rf inputs.recipe ./*.part ./*.part.sif
}

# temporary_folder DEFAULT CACHE: sets $work, which is removed at the end, and the engines' own variables.
temporary_folder() {
    local parent=${RECIPE_TMPDIR:-${1:-${TMPDIR:-/tmp}}}
    mkdir -p "$parent" || fail "the temporary folder $parent cannot be made: give another one by RECIPE_TMPDIR"
    work=$(mktemp -d "$parent/recipe-XXXXXXXX") || fail "the temporary folder $parent cannot be written to"
    trap remove_work EXIT
    export TMPDIR="$work" APPTAINER_TMPDIR="$work" SINGULARITY_TMPDIR="$work"
    if [ -n "${2:-}" ]; then
        export APPTAINER_CACHEDIR="${APPTAINER_CACHEDIR:-$2}" SINGULARITY_CACHEDIR="${SINGULARITY_CACHEDIR:-$2}"
    fi
}

# zstd packs five times faster than gzip and starts faster (docs/packing.md); older engines cannot be told.
zstd_if_possible() {
    # No pipe into grep -q here: it ends early, and the engine's SIGPIPE would count as a failure.
    case "$("$runtime" build --help 2>/dev/null)" in
        *--mksquashfs-args*) pack_options=(--mksquashfs-args "-comp zstd -Xcompression-level 3") ;;
    esac
}

# setting NAME VALUE: a variable for the build inside the image, never stored in it.
setting() {
    [ -n "$2" ] || return 0
    printf 'export %s=%q\n' "$1" "$2" >>"$work/settings"
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
        build_binds+=(--bind "$path:/mnt/$folders")
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

# both PIP_NAME VALUE UV_NAME VALUE: a list of places for pip and for uv, which takes pip's where it has none of its own.
# uv separates folders by commas, pip by spaces.
both() {
    places "$2"
    setting "$1" "$seen"
    if [ -n "$4" ]; then places "${4//,/ }"; fi
    if [ "$3" = UV_FIND_LINKS ]; then seen=${seen// /,}; fi
    setting "$3" "$seen"
}

# package_settings: indexes, mirrors, certificates and wheel folders of this machine, for pip and uv in the build.
# pip's own variables are given to uv where uv's are not set. Sets $inputs (seen as /mnt in the build) and $settings.
package_settings() {
    local certificate
    folders=0
    inputs=${inputs:-$work/inputs}
    settings=$work/settings
    all_settings=()
    mkdir -p "$inputs"
    : >"$settings"
    chmod 600 "$settings"
    certificate=${SSL_CERT_FILE:-${PIP_CERT:-${REQUESTS_CA_BUNDLE:-}}}
    if [ -n "$certificate" ] && [ -f "$certificate" ]; then
        cp "$certificate" "$inputs/ca.pem"
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
    setting SOURCE_DATE_EPOCH "${SOURCE_DATE_EPOCH:-}"
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY all_proxy; do
        setting "$name" "${!name:-}"
    done
}

# inside_build: binds and variables for a build by Apptainer or Singularity; downloads are kept between builds.
inside_build() {
    local cache=${RECIPE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/recipe}
    package_settings
    mkdir -p "$cache/uv" "$inputs/cache" 2>/dev/null || cache=$work
    mkdir -p "$cache/uv" "$inputs/cache"
    build_binds=(--bind "$inputs:/mnt" --bind "$cache/uv:/mnt/cache" "${build_binds[@]}")
    cp "$settings" "$inputs/settings"
    export "${flavour}ENV_RECIPE_SETTINGS=/mnt/settings" "${flavour}ENV_UV_CACHE_DIR=/mnt/cache"
    if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then export "${flavour}ENV_SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"; fi
}

# through_environment: the same for a program that enters containers by itself (cotainr) and takes no binds.
through_environment() {
    local item binds
    package_settings
    [ "${#all_settings[@]}" -gt 0 ] || return 0
    for item in "${all_settings[@]}"; do export "${flavour}ENV_$item"; done
    # /mnt is in every image.
    binds=$inputs:/mnt
    for item in "${build_binds[@]}"; do
        if [ "$item" != --bind ]; then binds=$binds,$item; fi
    done
    export "${flavour}_BIND=$binds"
}

# put_in_place PART FINAL: only a whole product gets its name.
put_in_place() {
    [ -s "$1" ] || fail "the engine ended without an error and wrote no image"
    sync -- "$1" 2>/dev/null || true
    mv -f -- "$1" "$2"
}

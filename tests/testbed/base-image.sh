#!/usr/bin/env bash
# Makes, once, the base image that the demo and the tests build on, as the unprivileged user and without any registry:
#   base/debian-python.tar    root file system of Debian 12 with Python 3.11, pip and venv (also for docker import)
#   base/debian-python.sif    the same as an image
# Prints the path of the SIF. The packages come from the mirror the machine's own apt uses.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

SUITE=bookworm
# usr-is-merged: usrmerge, the other package that does it, brings Perl, 50 MB that every build of a test would pack again.
INCLUDE=usr-is-merged,ca-certificates,python3,python3-pip,python3-venv
HOOKS=/usr/share/mmdebstrap/hooks/merged-usr
EXCLUDE=(/usr/share/{man,info,doc,locale}/\*) # a quarter of the files
BASE=$STATE/base
LOG=$STATE/logs/base-image.log
# As recipe packs a base image that it takes from a registry: layers can become a part of it.
PACKING="-comp zstd -Xcompression-level 3 -b 128K"
umask 022                    # tar takes it from the rights of all files of the image, which no user can enter then
CONTENT="$SUITE: $INCLUDE, not ${EXCLUDE[*]}"
STAMP="$PACKING, umask 022, $CONTENT" # an image with another one is made again

logged() { # runs a command as the user with its output in the log; the end of it is shown if the command fails
    as_user "$@" >>"$LOG" 2>&1 && return 0
    tail -n 20 "$LOG" >&2
    die 5 "the base image could not be built: ${*:1:2} ... failed" "see $LOG"
}

make_tar() {
    local source=()
    say "making $BASE/debian-python.tar (about half a minute)"
    # Without a source of its own (not a Debian machine) mmdebstrap takes its default mirror.
    if [ -n "$(debian_suite)" ]; then mapfile -t source < <(debian_source "$SUITE"); fi
    logged mmdebstrap --variant=minbase --hook-dir="$HOOKS" --include="$INCLUDE" \
        "${EXCLUDE[@]/#/--dpkgopt=path-exclude=}" "$SUITE" "$BASE/part.tar" "${source[@]}"
    as_user mv "$BASE/part.tar" "$BASE/debian-python.tar"
    as_user tee "$BASE/content" <<<"$CONTENT" >/dev/null
}

make_sif() {
    local tree=$BASE/part.tree
    say "making $BASE/debian-python.sif"
    as_user rm -rf "$tree"
    as_user mkdir "$tree"
    # A user cannot make device nodes; the engine brings its own /dev.
    logged tar --extract --exclude='./dev/*' --directory "$tree" --file "$BASE/debian-python.tar"
    logged chmod -R u+rwX "$tree"
    logged apptainer build --force --mksquashfs-args "$PACKING" "$BASE/part.sif" "$tree"
    as_user mv "$BASE/part.sif" "$BASE/debian-python.sif"
    as_user rm -rf "$tree"
    as_user tee "$BASE/packing" <<<"$STAMP" >/dev/null
}

require_user
exec 8>"$STATE/logs/base-image.lock"
flock 8
started=$SECONDS
[ -f "$BASE/debian-python.tar" ] && [ "$(cat "$BASE/content" 2>/dev/null)" = "$CONTENT" ] || make_tar
[ -f "$BASE/debian-python.sif" ] && [ "$(cat "$BASE/packing" 2>/dev/null)" = "$STAMP" ] || make_sif
if [ "$((SECONDS - started))" -gt 0 ]; then say "base image ready after $((SECONDS - started)) s"; fi
echo "$BASE/debian-python.sif"

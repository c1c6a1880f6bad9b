#!/usr/bin/env bash
# Runs a command in the image as Local does. Usage: bash start.sh COMMAND...
# This folder may be moved; the image is looked for at this path.
set -eo pipefail
export RECIPE_IMAGE=/images/digits.sif
folder=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
RECIPE_WORKDIR=$(pwd -P)
export RECIPE_WORKDIR
# Programs of the machine that are started meanwhile do not find those of the image.
PATH=:$PATH: && PATH=${PATH//":$folder/bin:"/:} && PATH=${PATH#:} && PATH=${PATH%:}
cd -- "$folder"
. ./engine.sh
[ -e "$RECIPE_IMAGE" ] || fail "the image $RECIPE_IMAGE was moved or removed: its path is in $folder/start.sh"
case $RECIPE_WORKDIR in
    / | /opt | /run | /var | /bin | /bin/* | /dev | /dev/* | /etc | /etc/* | /lib | /lib/* | /lib64 | /lib64/* | /proc | /proc/* | /sbin | /sbin/* | /sys | /sys/* | /usr | /usr/*)
        fail "an image has folders of its own at $RECIPE_WORKDIR: start it in another folder"
        ;;
    *[:,]*) fail "no container can be given the folder $RECIPE_WORKDIR: its name has a colon or a comma" ;;
esac
set -u
. run/container.sh
exec_image "$@"

#!/usr/bin/env bash
# Runs a command in the image as LUMI-G does. Usage: bash start.sh COMMAND...
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
if [ -n "${SLURM_JOB_ID:-}" ] && [ -z "${SLURMD_NODENAME:-}" ]; then
    # The shell of salloc, on a login node: a task of the job is on its first node.
    step=(srun --nodes=1 --ntasks=1 --overlap)
    if [ -t 0 ] && [ -t 1 ]; then step+=(--pty); fi
    cd -- "$RECIPE_WORKDIR"
    exec "${step[@]}" bash "$folder/start.sh" "$@"
fi
if [ -n "${SLURM_JOB_ID:-}" ]; then
    . run/job.sh
    . run/local.sh
    make_local_folders
fi
set -u
. run/container.sh
exec_image "$@"

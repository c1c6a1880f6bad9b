#!/usr/bin/env bash
# Runs a command in the image on this machine; without one, the suite. Usage: bash run/ranks.sh [RANKS [COMMAND...]]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. ./engine.sh
. run/container.sh
. run/suite.sh
ranks=${1:-2}
if [ "$#" -gt 0 ]; then shift; fi
case $ranks in "" | *[!0-9]* | 0*) echo "recipe: error: '$ranks' is not a number" >&2 && exit 2 ;; esac

# RECIPE_PROCESSES=plain: without torchrun, for a program that needs no torch
launch() {
    if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then
        in_image "$@"
    elif [ "${RECIPE_PROCESSES:-torchrun}" = plain ]; then
        plain_ranks "$ranks" "$@"
    else
        # torchrun sets 1 where nothing is set.
        local threads=$(($(nproc) / ranks))
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
        in_image python3 -m torch.distributed.run --standalone --nproc_per_node "$ranks" --no-python "$@"
    fi
}

if [ "$#" -gt 0 ]; then
    launch "$@"
    exit
fi
begin_suite ranks probe
device=(--device cpu)
every_rank probe --timeout 600 --expect-ranks "${ranks}" "${device[@]}"
conclude_suite

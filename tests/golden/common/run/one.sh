#!/usr/bin/env bash
# Runs a command in the image on this machine; without one, the suite. Usage: bash run/one.sh [COMMAND...]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. ./engine.sh
. run/container.sh
. run/suite.sh

launch() {
    in_image "$@"
}

if [ "$#" -gt 0 ]; then
    launch "$@"
    exit
fi
begin_suite one probe mnist
device=(--device cpu)
every_rank probe --timeout 600 "${device[@]}"
one_process mnist --timeout 600 "${device[@]}"
conclude_suite

#!/usr/bin/env bash
# Runs a command in the image on this machine; without one, the smoke test. Usage: bash run/one.sh [COMMAND...]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. run/container.sh
if [ "$#" -eq 0 ]; then set -- python3 -B smoke mnist --result smoke-one.json; fi
in_image "$@"

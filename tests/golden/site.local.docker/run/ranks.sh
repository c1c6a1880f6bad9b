#!/usr/bin/env bash
# Runs a command in the image on this machine; without one, the smoke test. Usage: bash run/ranks.sh [RANKS [COMMAND...]]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. run/container.sh
ranks=${1:-2}
if [ "$#" -gt 0 ]; then shift; fi
if [ "$#" -eq 0 ]; then set -- python3 -B smoke ddp --result smoke-ranks.json; fi
in_image python3 -m torch.distributed.run --standalone --nproc_per_node "$ranks" --no-python "$@"

#!/usr/bin/env bash
# From nothing to an image that has trained: builds the example recipe for the site "local" on this machine.
# The second run makes the image again, out of the cache. Further arguments go to `recipe build`.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

"$CHECKOUT/tests/testbed/engines.sh" apptainer tools
"$CHECKOUT/tests/testbed/venv.sh"
base=$("$CHECKOUT/tests/testbed/base-image.sh")
cd "$WORKTREE"
# Where pip is told to find wheels in folders, PyTorch's own index may be out of reach: pip's settings then come first.
wheels=("${PIP_FIND_LINKS:-/nowhere}"/torch-*.whl)
if [ -z "${RECIPE_TORCH_INDEX:-}" ] && [ -e "${wheels[0]}" ]; then export RECIPE_TORCH_INDEX=default; fi
command=(recipe build local recipes/mnist-local.yml --base "$base" -o "$STATE/demo/mnist.sif" --force "$@")
say "\$ ${command[*]}"
as_user "${command[@]}"

#!/usr/bin/env bash
# Smoke test: trains in the image and judges the numbers.
# Written by recipe 0.0.0 for 'Full_of.everything' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

results_folder .
. run/container.sh
arguments=()
digits=()
if [ -n "${RECIPE_MNIST:-}" ]; then
    options+=(--bind "$RECIPE_MNIST:/media:ro")
    digits+=(--data /media)
fi
# Every image has /mnt.
inside() { "$runtime" exec "${options[@]}" --bind "$PWD:/mnt" --pwd /mnt "$image" "$@"; }
rm -f "$results"/verify.json "$results"/smoke-*.json
failed=0
arguments+=(--device cpu)
inside python3 -B verify.py recipe.json "$results/verify.json" || failed=1
inside python3 -B smoke imports --result "${results}/smoke-imports.json" torch numpy.linalg || failed=1
inside python3 -B smoke mnist "${digits[@]}" --result "$results/smoke-mnist.json" "${arguments[@]}" || failed=1
exit "$failed"

#!/usr/bin/env bash
# Smoke test: trains in the image and judges the numbers.
# Written by recipe 0.0.0 for 'climate' on frontier.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

. run/container.sh
arguments=()
if [ -n "${RECIPE_MNIST:-}" ]; then
    options+=(--bind "$RECIPE_MNIST:/media:ro")
    arguments+=(--data /media)
fi
# /mnt is in every image, whatever folder this is.
inside() { "$runtime" exec "${options[@]}" --bind "$PWD:/mnt" --pwd /mnt "$image" "$@"; }
rm -f verify.json smoke-*.json
failed=0
if [ "${RECIPE_EXPECT_GPU:-no}" = yes ] || [ -e /dev/kfd ]; then
    arguments+=(--expect-vendor amd)
else
    echo 'recipe: no amd GPU here: the smoke test trains on the CPU; run it on a GPU node as well'
    arguments+=(--device cpu)
fi
inside python3 -B verify.py recipe.json verify.json || failed=1
inside python3 -B smoke imports --result smoke-imports.json numpy xarray netCDF4 || failed=1
exit "$failed"

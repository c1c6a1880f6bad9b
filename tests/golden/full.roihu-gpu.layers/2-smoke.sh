#!/usr/bin/env bash
# Smoke test: trains in the image and judges the numbers.
# Written by recipe 0.0.0 for 'Full_of.everything' on roihu-gpu.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

# begin: forgets older results. end CODE: leaves those that are missing. Without either it tests.
results_folder .
case "${1:-}" in begin | "") rm -f "$results"/verify.json "$results"/smoke-*.json ;; esac
if [ "${1:-}" = begin ]; then exit 0; fi
conclude() {
    local reason="${failed_because:-the smoke test ended with exit code $1 before this was tested}"
    leave_results '{"architecture": "sm_90", "torch": "2.8.0+cu129", "vendor": "nvidia"}' "${reason}" verify.json smoke-imports.json smoke-mnist.json
}
if [ "${1:-}" = end ]; then
    conclude "${2:-1}"
    exit 0
fi
trap 'conclude $?' EXIT
image_alone
. run/container.sh
arguments=()
inside() { "$runtime" exec "${options[@]}" --bind "$PWD:/mnt" --pwd /mnt "$image" "$@"; }
failed=0
inside python3 -B verify.py recipe.json "$results/verify.json" || failed=1
if [ "${RECIPE_EXPECT_GPU:-no}" = yes ] || [ -e /dev/nvidiactl ]; then
    arguments+=(--expect-vendor nvidia)
else
    echo 'recipe: no nvidia GPU here: the smoke test trains on the CPU; run it on a GPU node too'
    arguments+=(--device cpu)
fi
inside python3 -B smoke imports --result "${results}/smoke-imports.json" torch numpy.linalg || failed=1
inside python3 -B smoke mnist "${digits[@]}" --result "$results/smoke-mnist.json" "${arguments[@]}" || failed=1
exit "$failed"

#!/usr/bin/env bash
# Smoke test: trains in the image and judges the numbers.
# Written by recipe 0.0.0 for 'mnist' on lumi-c.
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
    leave_results '{"torch": "2.8.0+cpu", "vendor": "cpu"}' "${reason}" verify.json smoke-imports.json smoke-mnist.json smoke-ddp.json
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
ranks=2
arguments+=(--device cpu)
inside python3 -B smoke imports --result "${results}/smoke-imports.json" torch torchvision numpy || failed=1
inside python3 -B smoke mnist "${digits[@]}" --result "$results/smoke-mnist.json" "${arguments[@]}" || failed=1
inside python3 -B smoke ddp --ranks "$ranks" "${digits[@]}" --result "$results/smoke-ddp.json" "${arguments[@]}" || failed=1
exit "$failed"

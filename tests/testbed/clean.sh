#!/usr/bin/env bash
# Ends the services of the demo and the tests and removes the state folder. Installed engines stay.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

if [ ! -e "$STATE" ]; then exit 0; fi
# Only a folder that these scripts made: RECIPE_DEV_HOME may point anywhere.
[ -d "$STATE/base" ] && [ -d "$STATE/logs" ] || die 2 "$STATE is no state folder of ours" "check RECIPE_DEV_HOME"
for service in docker registry slurm; do
    if [ -x "$CHECKOUT/tests/testbed/$service.sh" ]; then "$CHECKOUT/tests/testbed/$service.sh" stop; fi
done
if [ -x "$CHECKOUT/tests/testbed/slurm.sh" ]; then "$CHECKOUT/tests/testbed/slurm.sh" forget; fi
chmod -R u+rwX "$STATE"/{base,demo,registry} 2>/dev/null || true
rm -rf "$STATE"

#!/usr/bin/env bash
# Builds the image of this bundle from what is in it, and tests it. It asks no server and needs no installed recipe.
# bash build.sh [--no-smoke]
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=/dev/null
. "$here/settings.sh"
unset RECIPE_FETCH RECIPE_LAYERING UV_CACHE_DIR
export RECIPE_CACHE_DIR=$here/cache RECIPE_OFFLINE=yes RECIPE_UV=$here/bin/uv
for step in "$here"/plan/[0-9]*-*.sh; do
    case "$step" in
        *-smoke.sh) if [ "${1:-}" = --no-smoke ]; then continue; fi ;;
    esac
    echo "recipe: ${step##*/}"
    bash "$step"
done
for image in "$here"/plan/*.sif; do echo "$image"; done

#!/usr/bin/env bash
# Starts a kernel in the image: run by Jupyter, with the file that says how they connect.
set -eu
connection=$(realpath -- "$1")
# The file may lie where the image does not see it.
export RECIPE_BINDS="${RECIPE_BINDS:+$RECIPE_BINDS,}${connection%/*}"
exec bash "${BASH_SOURCE[0]%/*}/start.sh" python3 -m ipykernel_launcher -f "$connection"

# Variables of the recipe, for exec, run and shell alike.
# shellcheck shell=sh
export PYTHONNOUSERSITE=1

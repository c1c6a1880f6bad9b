# Variables of the recipe, for exec, run and shell alike.
# shellcheck shell=sh
export PATH="/opt/env/bin:$PATH"
export CONDA_PREFIX="/opt/env"
export PYTHONNOUSERSITE=1

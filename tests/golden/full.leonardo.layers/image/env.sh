# Variables of the recipe, for exec, run and shell alike.
# shellcheck shell=sh
export PATH="/opt/env/bin:$PATH"
export CONDA_PREFIX="/opt/env"
export PYTHONNOUSERSITE=1
export OMP_NUM_THREADS=8
export FROM_VARIABLES='a $(b) c'
export PLAIN=one
export QUOTED='it'"'"'s "so"'
export DOLLAR='$HOME `id` ${x}'
export JINJA='{{ x }} {% raw %}'
export EMPTY=''

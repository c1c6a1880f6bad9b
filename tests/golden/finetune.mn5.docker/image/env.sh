# Variables of the recipe, for exec, run and shell alike.
export PYTHONNOUSERSITE=1

-- A module for Lmod, written by `recipe module`. The folder may be moved.
local root = myFileName():match("^(.*)/modulefiles/")
help("digits/lumi-g: the image digits.sif on LUMI-G; digits-exec, python3")
whatis("digits/lumi-g: the image digits.sif on LUMI-G; digits-exec, python3")
prepend_path("PATH", pathJoin(root, "bin"))

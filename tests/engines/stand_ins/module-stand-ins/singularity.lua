-- Stand-in for MareNostrum 5's module: on the machine of the tests the program is on PATH already.
setenv("RUNTIME_STAND_IN", "singularity/3.11.5")

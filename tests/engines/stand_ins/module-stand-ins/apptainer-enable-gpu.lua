-- Stand-in for Frontier's module.
setenv("APPTAINERENV_GPU_STAND_IN", "enabled")

-- Stand-in for Frontier's module, which the plug-in's needs.
setenv("ROCM_STAND_IN", "loaded")

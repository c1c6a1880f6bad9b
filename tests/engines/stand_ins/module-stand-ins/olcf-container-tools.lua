-- Stand-in for Frontier's module.
setenv("OLCF_CONTAINER_TOOLS_STAND_IN", "loaded")

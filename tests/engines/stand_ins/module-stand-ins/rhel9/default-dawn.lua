-- Stand-in for Dawn's module: what matters of it here is that it is loaded after a purge, and sets up the host's Python.
setenv("DAWN_ENV_STAND_IN", "rhel9")
prepend_path("PYTHONPATH", "/stand-in/host-python")

-- Stand-in for Frontier's module: it binds what the host's MPI needs, by the variable that Apptainer reads.
-- The site's paths are not here: a folder that every machine has is bound instead, to a place that the image has.
setenv("APPTAINER_BINDPATH", "/usr/share:/mnt")
setenv("MPICH_GPU_SUPPORT_ENABLED", "1")
prepend_path("PYTHONPATH", "/stand-in/host-python")

-- Stand-in for Dawn's module, which brings oneCCL and Intel MPI with its mpiexec; the mpiexec here is Debian's own Hydra.
setenv("CCL_ROOT", "/stand-in/ccl/2021.15")
setenv("I_MPI_ROOT", "/stand-in/mpi/2021.15")

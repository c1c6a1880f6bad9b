/* A program of MPI, made with the image's mpi.h and library: each rank prints one line of JSON about the library that it
   has loaded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING], line[4096], maps[2048] = "";
    int rank, size, length, own, sum = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    own = rank + 1;
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = 0;
    for (char *c = version; *c; c++) *c = *c < ' ' ? ' ' : *c;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file)) { /* the last of them; all of a library have one path */
        char *path = strchr(line, '/');
        if (path && strstr(path, "/libmpi")) snprintf(maps, sizeof maps, "%.*s", (int)strcspn(path, "\n"), path);
    }
    fclose(file);
    printf("{\"rank\": %d, \"node\": \"%s\", \"size\": %d, \"sum\": %d, \"version\": \"%s\", \"library\": \"%s\"}\n", rank,
           getenv("SLURMD_NODENAME"), size, sum, version, maps);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD); /* see test_mpi.py */
    MPI_Finalize();
    return 0;
}

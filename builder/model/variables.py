"""Names of environment variables that no file may set: a shell, the loader, a runtime or a job reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReservedNames:
    """Names and prefixes that are reserved by one reader; `why` and `fix` are parts of messages."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    why: str
    fix: str

    def contains(self, name: str) -> bool:
        return name in self.names or (name.startswith(self.prefixes) and name not in self.allowed)


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Bash 5.3, "Bourne Shell Variables" and "Bash Variables", without those that only inform programs (LANG,
# LC_*, COLUMNS, LINES, SHELL, TERM, PATH): assigning to one of the rest runs, sources, evaluates or breaks something.
SHELL = ReservedNames(
    names=split_words(
        "CDPATH CHILD_MAX COMPREPLY COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FCEDIT "
        "FIGNORE FPATH FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE "
        "HISTIGNORE HISTSIZE HISTTIMEFORMAT HOSTFILE HOSTTYPE IFS IGNOREEOF INPUTRC INSIDE_EMACS LINENO MACHTYPE MAIL "
        "MAILCHECK MAILPATH MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT PPID PROMPT_COMMAND "
        "PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_ARGUMENT READLINE_LINE READLINE_MARK "
        "READLINE_POINT REPLY SECONDS SHELLOPTS SHLVL SRANDOM TIMEFORMAT TMOUT UID ZDOTDIR _ auto_resume histchars"
    ),
    prefixes=("BASH", "COMP_"),
    why="shells set it, evaluate it or run what it names",
    fix="choose another name",
)
# ld.so(8), and what glibc ignores in programs with other rights (sysdeps/generic/unsecvars.h) because it names code
# or files to read and write; of those TMPDIR, TZDIR and the MALLOC_* figures are ordinary settings.
LOADER = ReservedNames(
    names=split_words(
        "GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LOCALDOMAIN LOCPATH MALLOC_TRACE NIS_PATH NLSPATH "
        "RESOLV_HOST_CONF RES_OPTIONS"
    ),
    prefixes=("LD_",),
    allowed=frozenset({"LD_LIBRARY_PATH", "LD_RUN_PATH"}),
    why="the C library obeys it before any program begins",
    fix="leave it out; LD_LIBRARY_PATH is allowed, and a program's own wrapper can set it for that program",
)
# What Apptainer and SingularityCE set themselves, also by the names in their start script (seen with 1.4.5).
RUNTIME = ReservedNames(
    names=split_words("APPEND_PATH GID HOME PREPEND_PATH __exported_env__ e key"),
    prefixes=("APPTAINER_", "APPTAINERENV_", "SINGULARITY_", "SINGULARITYENV_", "SING_USER_DEFINED_"),
    why="Apptainer and Singularity set or obey it when an image is entered",
    fix="choose another name; for files of a program use the variable of that program, e.g. HF_HOME",
)
SCHEDULER = ReservedNames(
    names=frozenset({"MPI_LOCALRANKID"}),
    prefixes=(
        "SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "SPANK_", "PMI_", "PMI2_", "PMIX_",
        "HYDRA_", "I_MPI_HYDRA_",
    ),
    why="it belongs to Slurm and the launcher of the ranks",
    fix="leave it out: the job sets it",
)  # fmt: skip
JOB = ReservedNames(
    names=split_words(
        "LOCAL_RANK MASTER_ADDR MASTER_PORT RANK WORLD_SIZE PET_MASTER_ADDR PET_MASTER_PORT PET_NNODES PET_NODE_RANK "
        "PET_NO_PYTHON PET_NPROC_PER_NODE PET_STANDALONE"
    ),
    prefixes=("RECIPE_", "PET_RDZV_"),
    why="the scripts of a plan set it for each run",
    fix="leave it out: the job sets it",
)
IMAGE_GROUPS = (SHELL, LOADER, RUNTIME, SCHEDULER, JOB)

# A site's variables are set on its machines, where these locate programs and libraries.
HOST = ReservedNames(
    names=frozenset({"HOME", "LD_LIBRARY_PATH", "PATH"}),
    why="the programs of the machine are found and run by it",
    fix="load a module, or set it inside the image: SINGULARITYENV_NAME, APPTAINERENV_NAME",
)
HOST_GROUPS = (SHELL, LOADER, HOST)
RUNTIME_PREFIXES = ("APPTAINERENV_", "SINGULARITYENV_")  # a runtime removes them and sets the rest in the image
# The variable forms of the options in `site_options`, and names of programs or of files to write.
PROGRAM_SETTINGS = ReservedNames(
    names=split_words(
        "I_MPI_GTOOL I_MPI_HYDRA_BOOTSTRAP_EXEC I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS I_MPI_HYDRA_GDB_REMOTE_SHELL "
        "HYDRA_BOOTSTRAP_EXEC HYDRA_LAUNCHER_EXEC HYDRA_CONFIG_FILE "
        "SLURM_BCAST SLURM_BCAST_EXCLUDE SLURM_CONF SLURM_CONTAINER SLURM_CONTAINER_ID SLURM_EPILOG SLURM_PROLOG "
        "SLURM_SEND_LIBS SLURM_STDERRMODE SLURM_STDINMODE SLURM_STDOUTMODE SLURM_TASK_EPILOG SLURM_TASK_PROLOG "
        "SLURM_WORKING_DIR SLURM_MULTI_PROG"
    ),
    prefixes=(
        "RECIPE_", "SPANK_", "SLURM_SPANK_",
        *(
            engine + option
            for engine in ("APPTAINER_", "SINGULARITY_")
            for option in ("APP", "CONFIG", "CONFDIR", "DMTCP", "ENV_FILE", "FUSESPEC", "OVERLAY", "PID_FILE",
                           "SECURITY", "WRITABLE", "VM", "DOCKER_", "KEEP_PRIVS", "ALLOW_SETUID", "ADD_CAPS")
        ),
    ),
    allowed=frozenset({"APPTAINER_WRITABLE_TMPFS", "SINGULARITY_WRITABLE_TMPFS"}),
    why="a launcher or a runtime runs, reads or writes what it names",
    fix="leave it out",
)  # fmt: skip


def find_reserved_in_image(name: str) -> ReservedNames | None:
    """Return the group that reserves the name of a recipe's variable, None if it is free."""
    return next((group for group in IMAGE_GROUPS if group.contains(name)), None)


def find_reserved_on_host(name: str) -> ReservedNames | None:
    """Return the group that reserves the name of a site's variable; the runtime sets prefixed names in the image."""
    prefix = next((prefix for prefix in RUNTIME_PREFIXES if name.startswith(prefix)), "")
    if prefix:
        return SHELL if SHELL.contains(name.removeprefix(prefix)) else None
    return next((group for group in (*HOST_GROUPS, PROGRAM_SETTINGS) if group.contains(name)), None)

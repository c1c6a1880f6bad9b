# Variables of a job: the user's win over those of run/site.env, and both over the site's; sourced by job.sh.
# shellcheck shell=bash
declare -A own_values=()
expected_variables=(--expect-variable PYTHONNOUSERSITE=1)

# read_settings FILE: exports the lines NAME=VALUE of a file, as data; a variable that is set already stays as it is.
read_settings() {
    local file=$1 line name reserved number=0
    if [ ! -e "$file" ] && [ ! -L "$file" ]; then return 0; fi
    if [ -L "$file" ] || [ ! -f "$file" ]; then fail "$file is not a file: write the lines NAME=VALUE into one"; fi
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        if [ "$number" -gt 1000 ] || [ "${#line}" -gt 8192 ]; then fail "$file: line $number is too much: 1000 lines of 8192 characters"; fi
        line=${line%$'\r'}
        case $line in "" | "#"*) continue ;; esac
        name=${line%%=*}
        if [ "$name" = "$line" ] || ! [[ $name =~ ^([A-Z][A-Za-z0-9_]*|(http|https|ftp|all|no|rsync)_proxy)$ ]]; then
            fail "$file: line $number is not NAME=VALUE with a name that begins with a capital letter"
        fi
        find_reserved "$name"
        if [ -n "$reserved" ]; then fail "$file: line $number: $name cannot be set there: $reserved"; fi
        if [[ ${line#*=} == *[[:cntrl:]]* ]]; then fail "$file: line $number: the value of $name has a control character"; fi
        if [ -z "${!name+set}" ]; then export "$name=${line#*=}"; fi
    done <"$file"
}

# keep_own NAME...: remembers the user's values before modules change them. What a job's own scripts have set is not the
# user's: a job that is submitted by another one inherits it.
keep_own() {
    local name
    for name; do
        case $name in SLURM_*) continue ;; esac
        case $'\n'${RECIPE_SITE_VARIABLES:-}$'\n' in *$'\n'"$name=${!name-}"$'\n'*) continue ;; esac
        if [ -n "${!name+set}" ]; then own_values[$name]=${!name}; fi
    done
    RECIPE_SITE_VARIABLES=""
    export RECIPE_SITE_VARIABLES
}

# site_variable NAME VALUE: exports the user's value, or the site's; the probe looks for it in every rank.
site_variable() {
    if [ -n "${own_values[$1]+set}" ]; then
        export "$1=${own_values[$1]}"
    else
        export "$1=$2"
        RECIPE_SITE_VARIABLES+="$1=$2"$'\n'
    fi
    # Those for launchers and runtimes may be changed before the image sees them.
    case $1 in SLURM_* | APPTAINERENV_* | SINGULARITYENV_*) ;; *) expected_variables+=(--expect-variable "$1=${!1}") ;; esac
}

# find_plugin: sets NCCL_NET_PLUGIN to the user's or a module's; container.sh binds its folder where it is a file.
find_plugin() {
    export NCCL_NET_PLUGIN="${own_values[NCCL_NET_PLUGIN]-${NCCL_NET_PLUGIN-}}"
    if [ -f "$NCCL_NET_PLUGIN" ]; then
        NCCL_NET_PLUGIN=$(readlink -f -- "$NCCL_NET_PLUGIN") # a link may lead out of its folder
    elif [ -z "${own_values[NCCL_NET_PLUGIN]+set}" ]; then
        echo "recipe: warning: no module has set NCCL_NET_PLUGIN to a file: NCCL and RCCL have no plug-in between nodes" >&2
    fi
}

# find_reserved NAME: sets reserved if no file may set the variable; written from the table of recipe.
find_reserved() {
    local name=$1
    reserved=""
    case $name in
        RECIPE_BINDS | RECIPE_GPU_VISIBILITY | RECIPE_MASTER_PORT | RECIPE_MNIST) return 0 ;;
        APPTAINERENV_*|SINGULARITYENV_*) name=${name#*ENV_} ;;
        *)
            case $name in
                LD_LIBRARY_PATH | LD_RUN_PATH) ;;
                GCONV_PATH | GETCONF_DIR | GLIBC_TUNABLES | HOSTALIASES | LOCALDOMAIN | LOCPATH | MALLOC_TRACE \
                    | NIS_PATH | NLSPATH | RESOLV_HOST_CONF | RES_OPTIONS | LD_*) reserved='the C library obeys it before any program begins' ;;
            esac
            case $name in
                HOME | LD_LIBRARY_PATH | PATH) reserved='the programs of the machine are found and run by it' ;;
            esac
            case $name in
                APPTAINER_WRITABLE_TMPFS | SINGULARITY_WRITABLE_TMPFS) ;;
                HYDRA_BOOTSTRAP_EXEC | HYDRA_CONFIG_FILE | HYDRA_LAUNCHER_EXEC | I_MPI_GTOOL | \
                    I_MPI_HYDRA_BOOTSTRAP_EXEC | I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS | \
                    I_MPI_HYDRA_GDB_REMOTE_SHELL | SLURM_BCAST | SLURM_BCAST_EXCLUDE | SLURM_CONF | \
                    SLURM_CONTAINER | SLURM_CONTAINER_ID | SLURM_EPILOG | SLURM_MULTI_PROG | SLURM_PROLOG | \
                    SLURM_SEND_LIBS | SLURM_STDERRMODE | SLURM_STDINMODE | SLURM_STDOUTMODE | \
                    SLURM_TASK_EPILOG | SLURM_TASK_PROLOG | SLURM_WORKING_DIR | APPTAINER_ADD_CAPS* | \
                    APPTAINER_ALLOW_SETUID* | APPTAINER_APP* | APPTAINER_CONFDIR* | APPTAINER_CONFIG* | \
                    APPTAINER_DMTCP* | APPTAINER_DOCKER_* | APPTAINER_ENV_FILE* | APPTAINER_FUSESPEC* | \
                    APPTAINER_KEEP_PRIVS* | APPTAINER_OVERLAY* | APPTAINER_PID_FILE* | APPTAINER_SECURITY* | \
                    APPTAINER_VM* | APPTAINER_WRITABLE* | RECIPE_* | SINGULARITY_ADD_CAPS* | \
                    SINGULARITY_ALLOW_SETUID* | SINGULARITY_APP* | SINGULARITY_CONFDIR* | SINGULARITY_CONFIG* \
                    | SINGULARITY_DMTCP* | SINGULARITY_DOCKER_* | SINGULARITY_ENV_FILE* | \
                    SINGULARITY_FUSESPEC* | SINGULARITY_KEEP_PRIVS* | SINGULARITY_OVERLAY* | \
                    SINGULARITY_PID_FILE* | SINGULARITY_SECURITY* | SINGULARITY_VM* | SINGULARITY_WRITABLE* | \
                    SLURM_SPANK_* | SPANK_*) reserved='a launcher or a runtime runs, reads or writes what it names' ;;
            esac
            case $name in
                LOCAL_RANK | MASTER_ADDR | MASTER_PORT | PET_MASTER_ADDR | PET_MASTER_PORT | PET_NNODES | \
                    PET_NODE_RANK | PET_NO_PYTHON | PET_NPROC_PER_NODE | PET_STANDALONE | RANK | WORLD_SIZE | \
                    PET_RDZV_* | RECIPE_*) reserved='the scripts of a plan set it for each run' ;;
            esac
            ;;
    esac
    case $name in
        CDPATH | CHILD_MAX | COMPREPLY | COPROC | DIRSTACK | EMACS | ENV | EPOCHREALTIME | EPOCHSECONDS | EUID \
            | EXECIGNORE | FCEDIT | FIGNORE | FPATH | FUNCNAME | FUNCNEST | GLOBIGNORE | GLOBSORT | GROUPS | \
            HISTCMD | HISTCONTROL | HISTFILE | HISTFILESIZE | HISTIGNORE | HISTSIZE | HISTTIMEFORMAT | \
            HOSTFILE | HOSTTYPE | IFS | IGNOREEOF | INPUTRC | INSIDE_EMACS | LINENO | MACHTYPE | MAIL | \
            MAILCHECK | MAILPATH | MAPFILE | OLDPWD | OPTARG | OPTERR | OPTIND | OSTYPE | PIPESTATUS | \
            POSIXLY_CORRECT | PPID | PROMPT_COMMAND | PROMPT_DIRTRIM | PS0 | PS1 | PS2 | PS3 | PS4 | PWD | \
            RANDOM | READLINE_ARGUMENT | READLINE_LINE | READLINE_MARK | READLINE_POINT | REPLY | SECONDS | \
            SHELLOPTS | SHLVL | SRANDOM | TIMEFORMAT | TMOUT | UID | ZDOTDIR | _ | auto_resume | histchars | \
            BASH* | COMP_*) reserved='shells set it, evaluate it or run what it names' ;;
    esac
}

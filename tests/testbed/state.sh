# shellcheck shell=bash
# Shared by the scripts of this folder: where things lie, who runs them, how the package manager is called.
# Sourced, never run.
#
#   as root         state in /var/lib/recipe-dev, everything that uses an engine runs as the user recipe-dev in a
#                   copy of the checkout (Apptainer refuses %post as root on machines without every capability, and
#                   every supercomputer runs it unprivileged; the checkout may lie where that user cannot read)
#   ordinary user   state in <checkout>/.dev, everything runs in the checkout as oneself
#   RECIPE_DEV_HOME overrides the state folder

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DEV_USER=recipe-dev
PATH=$PATH:/usr/sbin:/sbin

say() { printf '%s\n' "$*" >&2; }

die() { # die CODE "what is wrong" ["what to do"]
    printf 'error: %s\n' "$2" >&2
    if [ $# -gt 2 ]; then printf '  fix: %s\n' "$3" >&2; fi
    exit "$1"
}

is_root() { [ "$(id -u)" -eq 0 ]; }

if is_root; then
    umask 022 # what root makes is for the user too
    STATE=${RECIPE_DEV_HOME:-/var/lib/recipe-dev}
    WORKTREE=$STATE/checkout
else
    STATE=${RECIPE_DEV_HOME:-$CHECKOUT/.dev}
    WORKTREE=$CHECKOUT
fi
case $STATE in /*) ;; *) STATE=$PWD/$STATE ;; esac

# --- the unprivileged user -------------------------------------------------------------------------------------------

require_user() { # makes the user and the state folder; as an ordinary user only the folder
    if is_root; then
        id "$DEV_USER" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$DEV_USER"
        local ids
        for ids in /etc/subuid /etc/subgid; do
            grep -q "^$DEV_USER:" "$ids" 2>/dev/null ||
                die 4 "the user \"$DEV_USER\" has no range in $ids" "usermod --add-subuids 200000-265535 --add-subgids 200000-265535 $DEV_USER"
        done
        # Not recursively: data of the root daemons lies below.
        install -d -m 755 -o "$DEV_USER" -g "$DEV_USER" "$STATE" "$STATE"/{base,registry,demo,logs,checkout}
        install -d -m 711 "$STATE/docker"
        copy_user_settings
    else
        if ! { mkdir -p "$STATE"/{base,registry,demo,logs} && [ -w "$STATE/logs" ]; } 2>/dev/null; then
            die 4 "the state folder $STATE cannot be written" "name a folder of your own: RECIPE_DEV_HOME=/path"
        fi
    fi
}

copy_user_settings() { # root's own pip and uv settings (indexes, certificates) serve the user too, readable by it alone
    local home file
    home=$(getent passwd "$DEV_USER" | cut -d: -f6)
    for file in .config/pip/pip.conf .pip/pip.conf .config/uv/uv.toml; do
        [ -f "$HOME/$file" ] || continue
        cmp -s "$HOME/$file" "$home/$file" && continue
        as_user mkdir -p "$home/${file%/*}"
        install -m 600 -o "$DEV_USER" -g "$DEV_USER" "$HOME/$file" "$home/$file"
    done
}

kept_environment() { # prints NAME=VALUE, NUL-terminated, of what a command of the user inherits from root
    local name
    while IFS= read -r name; do
        case $name in
            PIP_* | UV_* | RECIPE_* | LC_* | *_proxy | *_PROXY | LANG | TERM | CI | NO_COLOR | SOURCE_DATE_EPOCH | \
                DOCKER_HOST | DOCKER_BUILDKIT | SLURM_CONF | PYTEST_ADDOPTS | \
                SSL_CERT_FILE | SSL_CERT_DIR | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE)
                printf '%s=%s\0' "$name" "${!name}"
                ;;
        esac
    done < <(compgen -e)
}

as_user() { # runs a command as the unprivileged user, in the current folder where that user may enter it
    if ! is_root; then
        PATH=$STATE/venv/bin:$STATE/bin:$PATH "$@"
        return
    fi
    local home environment
    home=$(getent passwd "$DEV_USER" | cut -d: -f6)
    mapfile -d '' -t environment < <(kept_environment)
    # /usr/bin before /usr/local/bin: Debian's own docker client has BuildKit built in, a standalone one may lack it.
    environment+=(
        "HOME=$home" "USER=$DEV_USER" "LOGNAME=$DEV_USER" "SHELL=/bin/bash" "RECIPE_DEV_HOME=$STATE"
        "PATH=$STATE/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"
    )
    local -a drop=(setpriv --reuid "$DEV_USER" --regid "$DEV_USER" --init-groups)
    if "${drop[@]}" test -x "$PWD"; then
        "${drop[@]}" env -i "${environment[@]}" "$@"
    else
        (cd "$home" && exec "${drop[@]}" env -i "${environment[@]}" "$@")
    fi
}

update_worktree() { # as root: brings the user's copy of the checkout up to date (see tests/testbed/update_copy.py)
    is_root || return 0
    (
        cd "$CHECKOUT" || exit
        git -c safe.directory="$CHECKOUT" ls-files -coz --exclude-standard |
            while IFS= read -r -d '' file; do
                if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; fi
            done |
            tar --create --null --no-recursion --files-from=- --file=-
    ) | as_user /usr/bin/python3 -c "$(cat "$CHECKOUT/tests/testbed/update_copy.py")" "$WORKTREE"
}

test_environment() { # exports what the engine tests read; only what exists or runs
    export RECIPE_DEV_HOME=$STATE
    if [ -f "$STATE/base/debian-python.sif" ]; then export RECIPE_TEST_BASE_SIF=$STATE/base/debian-python.sif; fi
    if [ -f "$STATE/base/debian-python.tar" ]; then export RECIPE_TEST_BASE_TAR=$STATE/base/debian-python.tar; fi
    if [ -x "$STATE/venv-cotainr/bin/cotainr" ]; then export RECIPE_TEST_COTAINR=$STATE/venv-cotainr/bin/cotainr; fi
    if [ -x "$STATE/venv-impi/bin/mpiexec" ]; then export RECIPE_TEST_IMPI=$STATE/venv-impi/bin; fi
    if [ -S "$STATE/docker/docker.sock" ]; then export DOCKER_HOST=unix://$STATE/docker/docker.sock; fi
    if [ -f "$STATE/registry/address" ]; then
        RECIPE_TEST_REGISTRY=$(cat "$STATE/registry/address")
        export RECIPE_TEST_REGISTRY
    fi
    if [ -f "$STATE/slurm/slurmctld.pid" ]; then export SLURM_CONF=$STATE/slurm/slurm.conf; fi
    # Real digits are no part of the repository; where they are in shared/ next to it, they are used.
    local digits=$CHECKOUT/../shared/mnist
    if [ -z "${RECIPE_TEST_MNIST:-}" ] && as_user test -r "$digits/t10k-images-idx3-ubyte.gz" 2>/dev/null; then
        RECIPE_TEST_MNIST=$(cd "$digits" && pwd)
        export RECIPE_TEST_MNIST
    fi
}

mount_scratch() { # mount_scratch GIB: as root, where so much memory is free, a file system in memory; prints its folder
    # A test of a build makes and removes ten thousand files; on a disk that is most of its time. Below /tmp, as
    # without it: engines bind that folder, and no test removes a folder above.
    local folder available
    is_root || return 0
    available=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
    if [ "${available:-0}" -lt "$1" ]; then return 0; fi
    folder=$(mktemp -d /tmp/recipe-dev-XXXXXX)
    if mount -t tmpfs -o "size=$((available - 8))g,mode=1777,nosuid,nodev" recipe-dev "$folder" 2>/dev/null; then
        echo "$folder"
    else
        rmdir "$folder"
    fi
}

unmount_scratch() { # unmount_scratch FOLDER: with what a test that was ended has left mounted there
    local place
    while read -r place; do umount -l "$place" 2>/dev/null || true; done < <(
        awk -v top="$1" '$2 == top || index($2, top "/") == 1 { print $2 }' /proc/mounts | sort -r
    )
    rmdir "$1" 2>/dev/null || true
}

# --- processes of our own --------------------------------------------------------------------------------------------

owns() { # owns PIDFILE PROGRAM: true when that process lives and is that program (a pid may have been given away)
    local pid
    pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "${2:0:15}" ] &&
        ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" # ended, and nobody has asked how
}

end_process() { # end_process PIDFILE PROGRAM: asks that one process to end and waits up to 30 s
    local pid tries=0
    if ! owns "$1" "$2"; then
        rm -f "$1"
        return 0
    fi
    pid=$(cat "$1")
    kill -TERM "$pid"
    while owns "$1" "$2"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ]; then die 5 "$2 (pid $pid) does not end"; fi
        sleep 0.2
    done
    rm -f "$1"
}

# --- Debian's packages -----------------------------------------------------------------------------------------------

debian_suite() { # prints bookworm, trixie, sid ...; nothing on another distribution
    local id codename
    # shellcheck source=/dev/null
    id=$(. /etc/os-release 2>/dev/null && echo "${ID:-}")
    if [ "$id" != debian ]; then return 0; fi
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-sid}")
    echo "$codename"
}

debian_source() { # debian_source SUITE: the machine's own mirror and key as an apt line for that suite
    # apt itself reads its sources here, in either of their two forms; other origins than Debian are left out.
    local suite=$1 own uri="" key="" line
    own=$(debian_suite)
    line=$(apt-get indextargets --format "\$(ORIGIN)|\$(CODENAME)|\$(COMPONENT)|\$(REPO_URI)|\$(SIGNED_BY)" \
        "Created-By: Packages" 2>/dev/null | grep -m 1 "^Debian|${own:-none}|main|" || true)
    IFS='|' read -r _ _ _ uri key <<<"$line"
    if [ -z "$uri" ]; then return 1; fi
    case $key in /*) ;; *) key=/usr/share/keyrings/debian-archive-keyring.gpg ;; esac
    echo "deb [signed-by=$key] ${uri%/} $suite main"
}

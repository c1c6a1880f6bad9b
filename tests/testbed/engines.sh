#!/usr/bin/env bash
# Brings the engines the demo and the tests need onto this machine: tests/testbed/engines.sh COMPONENT...
#   apptainer  Apptainer with all that unprivileged builds and FUSE mounts need
#   docker     the Docker engine and its client (nothing is started: tests/testbed/docker.sh)
#   registry   an image registry (tests/testbed/registry.sh)
#   tools      mmdebstrap, squashfs-tools, Python's venv module: for the base image and the virtual environments
#   slurm      Slurm and munge (tests/testbed/slurm.sh)
#   launch     Hydra's mpiexec (MPICH) and Lmod: what sites start ranks and load modules with; proot: what LUMI builds with
#   browser    chromium, for the pages of `recipe report`
#   shells     zsh and fish, for `recipe completion`
# As root on Debian it installs what is missing. Elsewhere it only checks; exit 4 and the command to run if one is missing.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"
export DEBIAN_FRONTEND=noninteractive

APPTAINER_HELPERS=(uidmap squashfs-tools squashfuse fuse3 fuse2fs fuse-overlayfs gocryptfs)
GLIBC=/usr/local/lib/apptainer-glibc # Apptainer's own C library, on Debian releases older than it was built for

packages_of() { # what Debian's own archive offers for a component
    case $1 in
        apptainer) echo "${APPTAINER_HELPERS[*]}" ;;
        docker) echo docker.io iptables ;;
        registry) echo docker-registry ;;
        tools) echo mmdebstrap squashfs-tools python3-venv ca-certificates ;;
        slurm) echo slurm-wlm munge ;;
        launch) echo mpich lmod proot ;;
        browser) echo chromium fonts-dejavu-core ;;
        shells) echo zsh fish ;;
        *) die 2 "unknown component \"$1\"" "one of: apptainer, docker, registry, tools, slurm, launch, browser, shells" ;;
    esac
}

programs_of() { # what must be callable for a component
    case $1 in
        apptainer) echo apptainer mksquashfs unsquashfs newuidmap ;;
        docker) if is_root; then echo docker dockerd iptables; else echo docker; fi ;;
        registry) echo docker-registry ;;
        tools) echo mmdebstrap mksquashfs python3 ;;
        slurm) echo sbatch srun slurmctld slurmd munged ;;
        launch) echo mpiexec.hydra /usr/share/lmod/lmod/libexec/lmod proot ;;
        browser) echo chromium ;;
        shells) echo zsh fish ;;
    esac
}

# --- checking --------------------------------------------------------------------------------------------------------

missing_of() { # prints the programs a component lacks
    local program
    for program in $(programs_of "$1"); do
        command -v "$program" >/dev/null || echo "$program"
    done
}

fix_of() { # the command that installs the components, by distribution
    local id like
    # shellcheck source=/dev/null
    id=$(. /etc/os-release 2>/dev/null && echo "${ID:-}")
    # shellcheck source=/dev/null
    like=" $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") "
    case $like in
        *" ubuntu "*)
            echo "sudo add-apt-repository -y ppa:apptainer/ppa && sudo apt-get install -y apptainer docker.io docker-registry mmdebstrap squashfs-tools uidmap python3-venv"
            ;;
        *" debian "*)
            if [ "$id" = debian ]; then echo "sudo $CHECKOUT/tests/testbed/engines.sh $*"; else echo "install: $*"; fi
            ;;
        *" fedora "* | *" rhel "*) echo "sudo dnf install -y apptainer squashfs-tools docker docker-distribution mmdebstrap" ;;
        *) echo "install these with your distribution's packages: $*" ;;
    esac
}

check() { # check COMPONENT...: exit 4 with all that is missing
    local component missing all=()
    for component in "$@"; do
        missing=$(missing_of "$component")
        if [ -n "$missing" ]; then all+=("$component (${missing//$'\n'/, })"); fi
    done
    if [ "${#all[@]}" -eq 0 ]; then return 0; fi
    local IFS=';'
    die 4 "missing on this machine: ${all[*]}" "$(IFS=' ' && fix_of "$@")"
}

# --- installing on Debian --------------------------------------------------------------------------------------------

quietly() { # runs a command with its output in a log file; the end of it is shown if the command fails
    local log=$STATE/logs/engines.log
    if "$@" >>"$log" 2>&1; then return 0; fi
    tail -n 20 "$log" >&2
    return 1
}

without_starting_daemons() { # packages bring init scripts: a policy-rc.d which refuses keeps them from starting daemons
    local policy=/usr/sbin/policy-rc.d rc=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    # Also when interrupted: a policy left behind would keep every later service of this machine from starting.
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    "$@" || rc=$?
    rm -f "$policy"
    trap - EXIT
    return "$rc"
}

install_packages() { # from the machine's own sources; the lists are renewed only if that is what is wrong
    local package missing=()
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    if [ "${#missing[@]}" -eq 0 ]; then return 0; fi
    say "installing ${missing[*]}"
    local -a install=(apt-get install -y --no-install-recommends -o "DPkg::Lock::Timeout=120" "${missing[@]}")
    without_starting_daemons "${install[@]}" >>"$STATE/logs/engines.log" 2>&1 && return 0
    quietly apt-get update
    without_starting_daemons quietly "${install[@]}" || die 5 "could not install ${missing[*]}" "see $STATE/logs/engines.log"
}

install_apptainer() {
    install_packages "${APPTAINER_HELPERS[@]}"
    if ! apptainer --version >/dev/null 2>&1; then
        case $(debian_suite) in
            bookworm) install_apptainer_beside_old_glibc ;;
            *) install_packages apptainer ;;
        esac
    fi
    command -v singularity >/dev/null || ln -s apptainer "$(dirname "$(command -v apptainer)")/singularity"
    # Without it every run unpacks the whole image first. The device grants nothing by itself: mounts happen in the
    # user's own namespace.
    if [ -c /dev/fuse ]; then chmod 666 /dev/fuse; fi
}

install_apptainer_beside_old_glibc() {
    # Debian 12 has no Apptainer, and unstable's needs a newer C library. The package is unpacked, not installed: dpkg
    # would hold its unmet dependency against every later installation.
    install_packages patchelf
    local work=$STATE/apptainer-packages
    say "installing apptainer from Debian unstable, with a C library of its own"
    rm -rf "$work"
    mkdir -p "$work"/{etc,lists/partial,cache/archives/partial,packages,tree}
    debian_source bookworm >/dev/null || quietly apt-get update
    if ! debian_source unstable >"$work/etc/sources.list" || ! debian_source trixie >>"$work/etc/sources.list"; then
        die 4 "apt has no source of Debian packages on this machine" "add one to /etc/apt/sources.list.d"
    fi
    download_packages "$work" apptainer/unstable {libc6,libseccomp2,libsqlite3-0,libgcc-s1}/trixie ||
        die 5 "could not download apptainer" "see $STATE/logs/engines.log"
    mkdir -p "$GLIBC"
    local package
    for package in "$work"/packages/lib*.deb; do dpkg -x "$package" "$work/tree"; done
    find "$work/tree" -path '*-linux-gnu/*' ! -path '*/gconv/*' -name '*.so*' -exec cp -a -t "$GLIBC" {} +
    for package in "$work"/packages/apptainer_*.deb; do dpkg -x "$package" /; done
    use_private_glibc
    rm -rf "$work"
    apptainer --version >/dev/null || die 5 "the unpacked apptainer does not start"
}

download_packages() { # download_packages WORK PACKAGE/SUITE...: with lists and a cache apart from the machine's own
    local work=$1
    shift
    local -a apart=(
        -o "Dir::Etc::SourceList=$work/etc/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root
        -o APT::Update::Post-Invoke-Success=
    )
    quietly apt-get "${apart[@]}" update && (cd "$work/packages" && quietly apt-get "${apart[@]}" download "$@")
}

use_private_glibc() {
    local program loader
    loader=$(echo "$GLIBC"/ld-linux-*.so.2)
    for program in /usr/bin/apptainer /usr/libexec/apptainer/bin/starter /usr/lib/*/apptainer/bin/starter; do
        if [ ! -f "$program" ]; then continue; fi
        # RPATH, not RUNPATH: the private libraries need each other too.
        patchelf --force-rpath --set-interpreter "$loader" --set-rpath "$GLIBC" "$program"
    done
}

install_components() {
    local component
    for component in "$@"; do
        if [ "$component" = apptainer ]; then
            install_apptainer
        else
            # shellcheck disable=SC2046 # a list of package names
            install_packages $(packages_of "$component")
        fi
    done
}

[ $# -gt 0 ] || die 2 "no component given" "tests/testbed/engines.sh apptainer docker registry tools slurm launch"
for component in "$@"; do packages_of "$component" >/dev/null; done
require_user
if is_root && [ -n "$(debian_suite)" ]; then
    exec 9>"$STATE/logs/engines.lock"
    flock 9
    install_components "$@"
fi
check "$@"

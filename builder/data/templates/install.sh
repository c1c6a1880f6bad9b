#!/bin/sh
# Fills an image while it is built; runs inside it, one part a call:
#   install.sh system | python | links | tools | torch | packages | files | run | finish
# Everything that comes from the recipe lies in files beside this script and is read as data.
# Written for POSIX sh: a base image need not have bash.
set -eu
# Whatever the umask of the build host: an image is read by people who are not root in it.
umask 022

UV_VERSION=0.13.8
# Of its wheels as the package index has them: x86_64 and aarch64, glibc and musl.
UV_HASHES="--hash=sha256:e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984
--hash=sha256:29451c60f5e8b07403e0a175d5229efc36b0289b34143ff4aaa499a5dd52553a
--hash=sha256:0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d
--hash=sha256:5337c30bb893b4f9ce0ceb921ba2da0d13f649da644f40ad3bef84083bef0203"
here=/opt/recipe/build
prefix=/opt/env
tools=${RECIPE_TOOLS:-/opt/recipe/tools}/uv-$UV_VERSION

# Indexes, certificates and proxies of the build host, for this build only.
settings=${RECIPE_SETTINGS:-/run/secrets/settings}
# shellcheck disable=SC1090
if [ -f "$settings" ]; then . "$settings"; fi

# The files of one build are those of the next: .pyc files hold a digest of their source, and no time.
fixed=${SOURCE_DATE_EPOCH:-}
export SOURCE_DATE_EPOCH="${fixed:-315532800}" PYC_INVALIDATION_MODE=UNCHECKED_HASH PYTHONDONTWRITEBYTECODE=1

say() { printf 'recipe: %s\n' "$*"; }
fail() { printf 'recipe: error: %s\n' "$*" >&2; exit 1; }
has() { [ -s "$here/$1" ]; }
place() { cat "$here/place"; }

# The Python that the packages go to.
target_python() {
    case "$(place)" in
        base) command -v python3 || command -v python || fail "the base image has no python3" ;;
        *) echo "$prefix/bin/python" ;;
    esac
}

# apt-get reads a name that it does not know as a regular expression where it holds a dot or a plus, and one that ends
# in a plus as the name before it (man apt-get, "install"). One that it knows (g++, python3.11) is that package.
known_to_apt() {
    while IFS= read -r package; do
        name=${package%%=*}
        case "$name" in *[.+]*) ;; *) continue ;; esac
        apt-cache --all-names pkgnames "$name" | grep -Fxq -e "$name" ||
            fail "there is no package '$name' for the base image: look for its name with 'apt-cache search'"
    done <"$here/system.txt"
}

system() {
    has system.txt || return 0
    say "distribution packages"
    if command -v apt-get >/dev/null; then
        # Without a range of sub-ids apt's own unprivileged user does not exist in the build.
        export DEBIAN_FRONTEND=noninteractive
        apt-get -o APT::Sandbox::User=root update -qq
        known_to_apt
        xargs apt-get -o APT::Sandbox::User=root install -y -qq --no-install-recommends <"$here/system.txt"
        rm -rf /var/lib/apt/lists/*
    elif command -v dnf >/dev/null; then
        xargs dnf install -y --setopt=install_weak_deps=False <"$here/system.txt"
        dnf clean all
    elif command -v microdnf >/dev/null; then
        xargs microdnf install -y <"$here/system.txt"
        microdnf clean all
    elif command -v zypper >/dev/null; then
        xargs zypper --non-interactive install --no-recommends <"$here/system.txt"
        zypper clean --all
    elif command -v apk >/dev/null; then
        xargs apk add --no-cache <"$here/system.txt"
    else
        fail "the base image has none of apt-get, dnf, microdnf, zypper and apk for the packages of container.system"
    fi
}

python() {
    case "$(place)" in
        base)
            "$(target_python)" "$here/protect.py" snapshot
            ;;
        venv)
            base_python=$(command -v python3 || true)
            [ -n "$base_python" ] || fail "the base image has no python3: add 'python=3.12' to the recipe's dependencies"
            if [ -s "$here/python-version" ]; then
                "$base_python" "$here/protect.py" python "$(cat "$here/python-version")"
            fi
            say "environment $prefix on $("$base_python" --version)"
            "$base_python" -m venv --without-pip "$prefix"
            ;;
        conda)
            say "conda environment $prefix"
            # conda's __cuda is what the site's driver serves; empty: the solver sees no NVIDIA GPU, whatever is here.
            CONDA_OVERRIDE_CUDA=$(cat "$here/cuda-version" 2>/dev/null || true)
            export CONDA_OVERRIDE_CUDA
            # No configuration of the build host: the recipe says it all.
            what=environment.yml
            # Of a lock: the very files, each with its sha256, and no solver.
            if has conda-explicit.txt; then what=conda-explicit.txt; fi
            /opt/recipe/micromamba create -y -q --no-rc --root-prefix /opt/recipe/mamba -p "$prefix" -f "$here/$what"
            rm -rf /opt/recipe/mamba
            sed -i 's/^==> .* <==$/==> 1980-01-01 00:00:00 <==/' "$prefix/conda-meta/history" 2>/dev/null || true
            find "$prefix" -follow -type f -name '*.a' -delete 2>/dev/null || true
            ;;
    esac
}

# What conda packages want to run once they are in place; their client does so inside the image.
# https://docs.conda.io/projects/conda-build/en/stable/resources/link-scripts.html
links() {
    for script in "$prefix"/bin/.*-post-link.sh; do
        [ -f "$script" ] || continue
        name=${script##*/.}
        name=${name%-post-link.sh}
        for record in "$prefix/conda-meta/$name"-*.json; do
            rest=${record##*/"$name"-}
            rest=${rest%.json}
            # Not the record of a package whose name only begins so: VERSION-BUILD is left of the right one.
            case "$rest" in *-*-*) ;; *-*) version=${rest%%-*} build=${rest#*-} ;; esac
        done
        say "post-link script of $name $version"
        PREFIX="$prefix" ROOT_PREFIX="$prefix" PKG_NAME="$name" PKG_VERSION="$version" PKG_BUILDNUM="${build##*_}" \
            PATH="$prefix/bin:$PATH" "$(command -v bash || echo sh)" -e "$script" ||
            fail "the post-link script of $name failed"
        if [ -f "$prefix/.messages.txt" ]; then cat "$prefix/.messages.txt" && rm "$prefix/.messages.txt"; fi
    done
}

# uv is installed beside the image's packages and leaves with the build.
tools() {
    # That of the machine which builds, where it runs here: another release reads nothing of what was downloaded by it.
    if /mnt/given/uv --version >/dev/null 2>&1; then
        uv=/mnt/given/uv
        return 0
    fi
    uv=$tools/bin/uv
    [ ! -x "$uv" ] || return 0
    installer=$(command -v python3 || command -v python || echo "$prefix/bin/python")
    [ -x "$prefix/bin/pip" ] && installer="$prefix/bin/python"
    "$installer" -m pip --version >/dev/null 2>&1 || "$installer" -m ensurepip >/dev/null 2>&1 ||
        fail "the base image's Python has no pip: add 'python3-pip' to container.system, or python=3.12 to the dependencies"
    # shellcheck disable=SC2086 # one word each
    echo "uv==$UV_VERSION" $UV_HASHES >"$here/uv.txt"
    "$installer" -m pip install -q --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes --no-deps --only-binary :all: --target "$tools" -r "$here/uv.txt"
}

# What this machine has downloaded is read-only here (/mnt/uv). It is asked once for what this image needs of wheels:
# uv's own cache gets what is known of them, and links to them.
known() {
    if [ ! -d /mnt/uv ] || [ -z "${UV_CACHE_DIR:-}" ] || [ -e "$here/known" ]; then return 0; fi
    asked "$("$(target_python)" -I -c "$QUESTION")" >"$here/known"
    mkdir -p "$UV_CACHE_DIR/archive-v0"
    for part in /mnt/uv/simple-v* /mnt/uv/wheels-v*; do
        if [ -d "$part" ]; then cp -RP "$part" "$UV_CACHE_DIR/"; fi
    done
    # Folders of its own with links to files: uv does not walk into a linked folder.
    if [ -d /mnt/uv/archive-v0 ]; then cp -rs /mnt/uv/archive-v0/. "$UV_CACHE_DIR/archive-v0/" 2>/dev/null || true; fi
}

QUESTION='
import json, os, platform, sys
from importlib.metadata import distributions
libc = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
found = {item.metadata["Name"] or "": item.version or "" for item in distributions()}
print(json.dumps({"minor": "%d.%d" % sys.version_info[:2], "machine": platform.machine(), "glibc": libc[-1] if libc else "",
                  "provided": found}))
'

# asked LINE: prints what the machine that builds answers.
asked() {
    answer=none
    if [ -p /mnt/given/ask ]; then printf '%s\n' "$1" >/mnt/given/ask && read -r answer </mnt/given/answer; fi
    echo "$answer"
}

uv_install() {
    set -- --python "$(target_python)" --link-mode copy --compile-bytecode "$@"
    [ -n "${UV_CACHE_DIR:-}" ] || set -- --no-cache "$@"
    if [ "$(place)" = base ] && has lock; then
        set -- --break-system-packages "$@"
    elif [ "$(place)" = base ]; then
        set -- --break-system-packages --excludes "$here/protected.txt" -c "$here/base-constraints.txt" "$@"
    fi
    tools
    known
    if [ -z "${UV_NO_CACHE:-}" ] && [ "$(cat "$here/known" 2>/dev/null)" = whole ]; then
        if uv_alone --offline "$@" 2>"$here/offline.log"; then return 0; fi
        asked show >"$here/known"
    fi
    uv_alone "$@"
}

# In a shell of its own: no later part sees the settings that are shown while something is built.
uv_alone() (
    # shellcheck disable=SC1091
    if [ -f /mnt/given/settings ]; then . /mnt/given/settings; fi
    # An index in uv's variables (a mirror of the default one) wins over the file's: it has other builds of torch.
    if [ "${own_index:-no}" = yes ]; then unset UV_DEFAULT_INDEX UV_INDEX_URL UV_INDEX UV_EXTRA_INDEX_URL; fi
    "$uv" pip install "$@"
)

torch() {
    has requirements-torch.txt || return 0
    say "PyTorch, from its own index"
    set -- -r "$here/requirements-torch.txt"
    # Of a lock: every file is listed, its dependencies too.
    if has lock; then set -- "$@" --no-deps; fi
    if grep -q '^--index-url ' "$here/requirements-torch.txt"; then own_index=yes; fi
    uv_install "$@"
    own_index=no
}

packages() {
    if has requirements.txt; then
        say "Python packages"
        set -- -r "$here/requirements.txt"
        if grep -qxe --require-hashes "$here/requirements.txt"; then
            # Such a file lists everything. What is here already, the site's torch, has no hash in it.
            set -- "$@" --no-deps
        elif has constraints.txt; then
            set -- "$@" -c "$here/constraints.txt"
        fi
        # uv passes over these options of pip's in a file, and takes them on its command line.
        if grep -qxe --pre "$here/requirements.txt"; then set -- "$@" --prerelease allow; fi
        # shellcheck disable=SC2013 # a host is one word
        for host in $(sed -n 's/^--trusted-host //p' "$here/requirements.txt"); do
            set -- "$@" --allow-insecure-host "$host"
        done
        if has compiled.txt; then
            # Built against the torch that is here: after everything else, with what their builds take from here.
            uv_install "$@" -r "$here/tools.txt" --excludes "$here/compiled.txt"
            say "Python packages that are compiled against this torch"
            while read -r name; do set -- "$@" --no-build-isolation-package "$name"; done <"$here/compiled.txt"
            # What was compiled against another torch has the same name in the cache.
            UV_NO_CACHE=1
            export UV_NO_CACHE
        fi
        uv_install "$@"
    fi
    # What is locked to a commit has no other hash.
    if has requirements-commits.txt; then uv_install --no-deps -r "$here/requirements-commits.txt"; fi
    if [ "$(place)" = base ]; then
        "$(target_python)" "$here/protect.py" check
    fi
}

files() {
    [ -d "$here/root" ] || return 0
    say "files"
    # Not -a: the image's own folders on the way (/, /opt ...) keep their modes.
    chmod -R a+rX "$here/root"
    cp -RP "$here/root/." /
}

run() {
    has run.sh || return 0
    asked over >/dev/null
    say "the recipe's own commands"
    # -x: the log says which command failed.
    code=0
    rm -f "$here/reached"
    recipe_reached="$here/reached" PATH="$prefix/bin:$PATH" sh -ex "$here/run.sh" || code=$?
    proved "$code" "$here/reached"
    if [ "$(place)" = base ]; then
        "$(target_python)" "$here/protect.py" check
    fi
}

# proved CODE FILE: the file names the last of the recipe's commands that has begun, `2 of 3`.
proved() {
    if ! read -r number _ total <"$2"; then fail "the recipe's own commands did not begin"; fi
    if [ "$1" != 0 ]; then
        say "command $number of container.run failed with exit code $1" >&2
        exit "$1"
    fi
    if [ "$number" != "$total" ]; then
        fail "command $number of container.run ends the shell: $((total - number)) of $total commands did not run"
    fi
}

# What holds times of this build and is of no use in an image.
undated() {
    find /var/log -type f -exec rm -f {} + 2>/dev/null || true
    rm -rf /var/cache/ldconfig /var/cache/apt/*.bin /var/cache/dnf /var/cache/debconf/*-old
    # Some ways of building without root put their own files here for a while.
    touch /.singularity.d/* 2>/dev/null || true
    if [ -n "$fixed" ]; then "$(target_python)" "$here/times.py" "$fixed"; fi
}

finish() {
    mkdir -p /opt/recipe /.singularity.d/env
    # Sourced by Apptainer and Singularity under exec, run and shell alike; also in an image that Docker made.
    cp "$here/env.sh" /.singularity.d/env/91-recipe.sh
    labels=${APPTAINER_LABELS:-${SINGULARITY_LABELS:-}}
    if [ -n "$labels" ] && has labels.txt; then cat "$here/labels.txt" >>"$labels"; fi
    cp "$here/recipe.json" "$here/verify.py" /opt/recipe/
    if has base-packages.txt; then cp "$here/base-packages.txt" /opt/recipe/; fi
    chmod a+r /.singularity.d/env/91-recipe.sh /opt/recipe/recipe.json /opt/recipe/verify.py
    chmod a+rx /opt/recipe
    if grep -q "no runscript defined" /.singularity.d/runscript 2>/dev/null; then
        # `apptainer run IMAGE COMMAND` would only say that there is none.
        printf '#!/bin/sh\nexec "$@"\n' >/.singularity.d/runscript
    fi
    if [ "$(place)" = conda ]; then
        # uv compiles what it installs; conda leaves some packages without.
        "$prefix/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$prefix/lib" >/dev/null 2>&1 || true
    fi
    undated
    rm -rf /root/.cache /root/.conda /root/.mamba /opt/recipe/micromamba /opt/recipe/tools
    rm -rf "${here:?}" 2>/dev/null || true
}

case "${1:-}" in
    system | python | links | tools | torch | packages | files | run | finish) "$1" ;;
    all)
        # No other program of this machine in sight, whose environment may hold a login; not every base image can do that.
        if [ -z "${2:-}" ] && unshare --pid --fork --mount-proc true 2>/dev/null; then
            exec unshare --pid --fork --mount-proc sh "$0" all apart
        fi
        for part in system python torch packages files run finish; do "$part"; done
        ;;
    *) fail "usage: install.sh system|python|links|tools|torch|packages|files|run|finish|all" ;;
esac

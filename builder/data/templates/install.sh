#!/bin/sh
# Fills an image while it is built; runs inside it, one part a call:
#   install.sh system | python | links | tools | torch | packages | own | files | run | finish
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

# In PRoot the engine has mounted files of its own over /etc/passwd and /etc/group. groupadd and useradd put new files in
# their place, and fail; until the packages are in, others write into those files, which are not part of the image.
ACCOUNTS="groupadd useradd groupmod usermod gpasswd chage chfn"

replace_accounts() {
    if groupadd -r recipe-try 2>/dev/null; then groupdel recipe-try && return 0; fi
    say "users and groups cannot be added in PRoot: packages see theirs during this build only"
    for name in $ACCOUNTS; do
        for path in "/usr/sbin/$name" "/usr/bin/$name"; do
            if [ -f "$path" ]; then mv "$path" "$path.recipe" && printf '%s\n' "$ACCOUNT" >"$path" && chmod 755 "$path"; fi
        done
    done
}

restore_accounts() {
    for name in $ACCOUNTS; do
        for path in "/usr/sbin/$name" "/usr/bin/$name"; do
            [ -f "$path.recipe" ] || continue
            # A package may have brought a newer one.
            if [ "$(cat "$path")" = "$ACCOUNT" ]; then mv "$path.recipe" "$path"; else rm "$path.recipe"; fi
        done
    done
}

# shellcheck disable=SC2016 # its own variables
ACCOUNT='#!/bin/sh
# Takes the place of groupadd and useradd in a build by PRoot.
for name; do :; done
group="" number=""
while [ "$#" -gt 1 ]; do
    case "$1:${0##*/}" in
        -u:useradd | --uid:useradd | -g:groupadd | --gid:groupadd) number=$2 ;;
        -g:useradd | --gid:useradd) group=$2 ;;
    esac
    shift
done
add() {
    if grep -q "^$name:" "$1"; then return 0; fi
    [ -n "$number" ] || number=$((700 + $(grep -c "" "$1")))
    printf "%s\n" "$name:x:$number:$2" >>"$1" || echo "recipe: note: $name could not be added to $1" >&2
}
case "${0##*/}" in
    groupadd) add /etc/group "" ;;
    useradd)
        found=$(sed -n "s/^$group:[^:]*:\\([0-9]*\\):.*/\\1/p" /etc/group)
        add /etc/passwd "${found:-${group:-65534}}::/nonexistent:/usr/sbin/nologin"
        ;;
esac'

system() {
    has system.txt || return 0
    if [ "${RECIPE_PROOT:-}" = yes ]; then replace_accounts; fi
    install_system
    if [ "${RECIPE_PROOT:-}" = yes ]; then restore_accounts; fi
}

install_system() {
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

# Whatever uv has reported, each package that is asked for by name is there. Left out: one with a condition, which may
# not apply, one that is given by its place alone, and one that the base image brings. `check_installed whole` looks for
# the modules of each as well, but not for those of its tests, which commands of a recipe may remove.
check_installed() {
    missing=$("$(target_python)" -s - "$here/protected.txt" "${1:-}" "$here/requirements.txt" "$here/requirements-torch.txt" <<'END'
import os, re, sys
try:
    from importlib.metadata import distributions
except ImportError:  # before Python 3.8
    sys.exit()

def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []

def whole(found):
    return all(os.path.exists(str(found.locate_file(file))) for file in found.files or () if MODULE.search(str(file)))

MODULE = re.compile(r"^(?!\.\.|.*(?:^|/)(?:tests?|testing|benchmarks?|examples?|docs?)/).*\.(?:py|so)$")
protected = {canonical(line.strip()) for line in lines(sys.argv[1])}
known = {canonical(found.metadata["Name"] or ""): found for found in distributions()}
name = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^]]*\])?\s*(?:[(=<>!~@\\#].*)?")
texts = [line.strip() for path in sys.argv[3:] for line in lines(path) if ";" not in line]
found = [name.fullmatch(text) for text in texts]
names = [one.group(1) for one in found if one and not one.group(1).endswith((".whl", ".gz", ".zip"))]
names = [one for one in names if canonical(one) not in protected]
if sys.argv[2]:  # commands of a recipe may remove pip when they are done with it
    names = [one for one in names if canonical(one) != "pip"]
here = {one for one in names if canonical(one) in known}
broken = {one for one in here if sys.argv[2] and not whole(known[canonical(one)])}
print(*sorted({*names} - here | broken))
END
    ) || fail "the packages that were installed cannot be listed"
    if [ -n "$missing" ] && [ -n "${1:-}" ]; then
        fail "a command of container.run removed packages or modules of the recipe: $missing: keep them, or take them out of the recipe"
    fi
    if [ -n "$missing" ]; then fail "uv reported no error, and these packages are not installed: $missing"; fi
}

# In a shell of its own: no later part sees the settings that are shown while something is built.
uv_alone() (
    # shellcheck disable=SC1091
    if [ -f /mnt/given/settings ]; then . /mnt/given/settings; fi
    # An index in uv's variables (a mirror of the default one) wins over the file's: it has other builds of torch.
    if [ "${own_index:-no}" = yes ]; then unset UV_DEFAULT_INDEX UV_INDEX_URL UV_INDEX UV_EXTRA_INDEX_URL; fi
    # Variant wheels (PEP 825), a preview of uv's, are chosen for the machine that builds.
    "$uv" pip install --no-preview "$@"
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
        if grep -qxe --require-hashes "$here/requirements.txt" && { has lock || has requirements-torch.txt; }; then
            # Such a file lists everything. What is here already, the site's torch, has no hash in it.
            set -- "$@" --no-deps
        elif grep -qe ' --hash=' "$here/requirements.txt" && ! has requirements-torch.txt && [ "$(place)" != base ]; then
            # As pip does: where one package has a hash, those that it requires need one.
            set -- "$@" --require-hashes
        elif has constraints.txt; then
            set -- "$@" -c "$here/constraints.txt"
        fi
        if grep -qe ' --hash=' "$here/requirements.txt" && grep -qe '^--no-binary ' "$here/requirements.txt"; then
            say "built from sources, as --no-binary asks: $(sed -n 's/^--no-binary //p' "$here/requirements.txt" | xargs)"
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
        check_installed
    fi
    # What is locked to a commit has no other hash.
    if has requirements-commits.txt; then uv_install --no-deps -r "$here/requirements-commits.txt"; fi
    pip_apart
    if [ "$(place)" = base ]; then
        "$(target_python)" "$here/protect.py" check
    fi
}

# pip for the recipe's commands where its file has hashes and does not list it; where no index has it, that of Python.
pip_apart() {
    has pip.txt || return 0
    ! "$(target_python)" -m pip --version >/dev/null 2>&1 || return 0
    say "pip, for the recipe's own commands"
    (uv_install --no-deps --require-hashes -r "$here/pip.txt") ||
        "$(target_python)" -m ensurepip --default-pip ||
        fail "commands of container.run call pip, which could not be installed: add its line with its hash to the recipe"
}

# The recipe's own folders: copies, since an image follows no folder of another machine.
own() {
    has requirements-own.txt || return 0
    say "the recipe's own packages"
    chmod -R a+rX "$here/local"
    set -- -r "$here/requirements-own.txt"
    if has constraints.txt; then set -- "$@" -c "$here/constraints.txt"; fi
    if grep -qxe --pre "$here/requirements.txt" 2>/dev/null; then set -- "$@" --prerelease allow; fi
    # What another content of these folders became has the same name in the cache.
    UV_NO_CACHE=1
    export UV_NO_CACHE
    uv_install "$@"
    unset UV_NO_CACHE
    if [ "$(place)" = base ]; then "$(target_python)" "$here/protect.py" check; fi
}

files() {
    [ -d "$here/root" ] || return 0
    say "files"
    # Not -a: the image's own folders on the way (/, /opt ...) keep their modes.
    chmod -R a+rX "$here/root"
    : >"$here/began"
    cp -RP "$here/root/." /
    refresh
}

run() {
    has run.sh || return 0
    pip_apart
    asked over >/dev/null
    say "the recipe's own commands"
    # -x: the log says which command failed.
    code=0
    had=$(first_package)
    list_conda >"$here/conda.before"
    runs=$(started)
    rm -f "$here/reached" "$here/closed"
    : >"$here/began"
    list_closed >"$here/closed.before"
    recipe_reached="$here/reached" recipe_install="$here/install.sh" PATH="$prefix/bin:$PATH" \
        sh -ex "$here/run.sh" || code=$?
    look
    if read -r number path 2>/dev/null <"$here/closed"; then
        text=$(sed -n "/echo \"$number of /{n;p;q;}" "$here/run.sh" | cut -c 1-100) || text="see the recipe"
        fail "command $number of container.run ($text) closed or removed '$path': users could not start the image"
    fi
    proved "$code" "$here/reached"
    set -- "$prefix"/lib/python3*/site-packages/*.dist-info
    if [ -n "$had" ] && [ ! -e "$1" ]; then
        fail "a command of container.run removed the packages in '$prefix': leave that folder as it is"
    fi
    case "$runs $(started)" in
        "same same" | "other other" | none*) ;;
        same*other*) fail "a command of container.run removed '$prefix/pyvenv.cfg' or changed what the Python of '$prefix' imports from: leave it as it is" ;;
        *) fail "a command of container.run removed or changed the Python of '$(dirname "$(dirname "$(target_python)")")', which no longer runs: leave it as it is" ;;
    esac
    refresh
    if [ -n "$had" ] || [ "$(place)" = base ]; then check_installed whole; fi
    check_conda
    if [ "$(place)" = base ]; then
        "$(target_python)" "$here/protect.py" check
    fi
}

# The conda packages that are there, by their records.
list_conda() { printf '%s\n' "$prefix"/conda-meta/*.json | sed -n 's,^.*/\([^/]*\)-[^-/]*-[^-/]*\.json$,\1,p'; }

# Of the conda packages that the recipe names, or that its lock lists, none was removed by its commands.
check_conda() {
    [ "$(place)" = conda ] || return 0
    gone=$(list_conda | grep -Fxv -f - "$here/conda.before" | grep -Fx "$(asked_of_conda)" | xargs) || gone=""
    if [ -n "$gone" ]; then
        fail "a command of container.run removed conda packages of the recipe: $gone: keep them, or take them out of the recipe"
    fi
}

asked_of_conda() {
    if has conda-explicit.txt; then
        sed -n 's,^.*/\([^/]*\)-[^-/]*-[^-/]*$,\1,p' "$here/conda-explicit.txt"
    elif has environment.yml; then
        sed -n "/^dependencies:/,\$ s/^  - [\"']\{0,1\}\([^ :=]*::\)\{0,1\}\([A-Za-z0-9._-]*\).*/\2/p" "$here/environment.yml"
    fi
}

# started: `same` where the Python that has the packages runs and imports from its own folder, else `other` or `none`. Only
# a Python can answer: the question has a number that no other program knows.
started() {
    case "$(place)" in base) set -- python3 ;; *) set -- "$prefix/bin/python" "$prefix/bin/python3" ;; esac
    for python; do
        answer=$("$python" -c 'import os, sys; at = sys.argv[1]; here = not os.path.isabs(at) or os.path.samefile(sys.prefix, at)
print(int(sys.argv[2]) * 7919, here)' "${python%/bin/python*}" $$ 2>/dev/null) || answer=""
        case "$answer" in
            "$(($$ * 7919)) True") ;;
            "$(($$ * 7919)) False") echo other && return 0 ;;
            *) echo none && return 0 ;;
        esac
    done
    echo same
}

# refresh: Python does not compare a .pyc file of ours with its source. Those of sources that were changed since `began`
# are compiled again, or removed where that fails.
refresh() {
    if [ ! -e "$here/began" ]; then return 0; fi
    PYTHONHASHSEED=0 "$(target_python)" -s - "$here/began" "$prefix/lib" <<'END' || true
import os, sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util, py_compile

began = os.stat(sys.argv[1]).st_mtime - 0.05

def stale(source, compiled):
    with open(source, "rb") as file:
        text = file.read()
    with open(compiled, "rb") as file:
        head = file.read(16)
    if head[4:8] == bytes(4):  # of the usual kind, with time and size
        times = int(os.stat(source).st_mtime), len(text)
        return head[8:16] != b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in times)
    return head[8:16] != importlib.util.source_hash(text)

def renew(source, optimization):
    compiled = importlib.util.cache_from_source(source, optimization=optimization)
    if not os.path.isfile(compiled) or not stale(source, compiled):
        return
    try:
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        level = int(optimization or 0)
        py_compile.compile(source, cfile=compiled, doraise=True, optimize=level, invalidation_mode=mode)
    except Exception:  # no source of this Python, or a folder that is not the image's
        os.remove(compiled)

seen = set()
for top in [sys.argv[2], *sys.path]:
    for folder, folders, names in os.walk(top):
        if folder in seen:
            folders.clear()
            continue
        seen.add(folder)
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.lstat(path).st_ctime >= began and os.path.isfile(path):
                for optimization in ("", 1, 2):
                    renew(path, optimization)
END
}

# What an image starts with and users of it cannot read, or what is missing of it.
list_closed() {
    for path in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 /bin/sh /usr/bin/env / /etc /usr /usr/bin /usr/lib /usr/local /usr/local/bin /bin /lib /lib64 /opt /opt/recipe \
        "$prefix" "$prefix/bin" "$prefix/bin/python" "$prefix/lib" "$prefix"/lib/python3* "$prefix"/lib/python3*/site-packages; do
        # What is below the environment is listed, too.
        case "$path $(ls -ldL "$path" 2>/dev/null || :)" in
            *" "???????r?[xt]*) continue ;;
            "$prefix"*) ;;
            *" "?????????[xt]*) continue ;;
        esac
        echo "$path"
    done
}

# look: after each of the recipe's commands; notes the one that has closed what was open before.
look() {
    refresh
    if [ -s "$here/closed" ] || ! read -r number _ 2>/dev/null <"$here/reached"; then return 0; fi
    list_closed | while IFS= read -r path; do
        if ! was_closed "$path"; then echo "$number $path" >"$here/closed" && break; fi
    done
}

# was_closed PATH: without a program, which may be what was removed.
was_closed() {
    while IFS= read -r known; do
        if [ "$known" = "$1" ]; then return 0; fi
    done <"$here/closed.before"
    return 1
}

# The first package of the environment, nothing where there is none.
first_package() {
    set -- "$prefix"/lib/python3*/site-packages/*.dist-info
    if [ -x "$prefix/bin/python" ] && [ -e "$1" ]; then echo "$1"; fi
}

# proved CODE FILE: the file names the last of the recipe's commands that has begun, `2 of 3`, and `2 of 3 until` while
# they can hide by a trap that they have failed.
proved() {
    if [ ! -e "$here/run.sh" ]; then
        fail "a command of container.run removed files of '$here', with which the build works: leave /opt/recipe as it is"
    fi
    if ! read -r number _ total until 2>/dev/null <"$2"; then
        fail "the recipe's own commands did not begin, or one of them removed '$2'"
    fi
    if [ "$1" != 0 ]; then
        say "command $number of container.run failed with exit code $1" >&2
        exit "$1"
    fi
    if [ "$number" != "$total" ]; then
        fail "command $number of container.run ends the shell: $((total - number)) of $total commands did not run"
    fi
    if [ -n "$until" ]; then fail "command $number of container.run ends the shell, and a trap hides how it ended"; fi
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
    system | python | links | tools | torch | packages | own | files | run | finish | look) "$1" ;;
    all)
        # No other program of this machine in sight, whose environment may hold a login; not every base image can do that.
        if [ -z "${2:-}" ] && unshare --pid --fork --mount-proc true 2>/dev/null; then
            exec unshare --pid --fork --mount-proc sh "$0" all apart
        fi
        for part in system python torch packages own files run finish; do "$part"; done
        ;;
    *) fail "usage: install.sh system|python|links|tools|torch|packages|own|files|run|finish|all" ;;
esac

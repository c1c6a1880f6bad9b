#!/usr/bin/env bash
# The checks of this project: tests/testbed/test.sh all|unit|source|properties|commands|terminal|users|fuzz|lint|docs|golden|bench
#   all      everything, with real engines: brings them, starts what the tests need, stops it again. Linters and unit
#            tests run at the same time as the others, at a low priority; their output is printed at the end
#   unit     the fast tests alone: no engine, no process
#   source   those that read our own source, pages and tests: floors, names, words, links; part of lint
#   properties those that try every place or drawn input, seconds each
#   commands those that start bash, Python and linters, and stand-ins for engines
#   terminal the installed wheel at a terminal: every command, every line of the pages, a table of mistakes
#   users    those that need root: it acts as two ordinary users, and mounts what we have written
#   fuzz     fresh foreign files of each kind: FUZZ_SECONDS (60) or FUZZ_CASES of each; arguments: kinds
#   lint     ruff, mypy, shellcheck, the tests of the source
#   docs     the pages as a site in build/site, where a dead link is an error
#   golden   rewrites tests/golden, the answers in tests/resolve and the pictures of the docs
#   bench    tests/benchmarks/run.py, with real engines; arguments: startup compile overhead peers, --runs N
# Further arguments go to pytest. The exit code is that of the tests.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

STARTED=() # services that were not running before
JOB=""
NO_GROUP="" # set in what runs aside, which is a group already
ASIDE="" # what runs at the same time as all else, with its output in ASIDE_LOG
ASIDE_LOG=$STATE/logs/aside.log
TEMPORARY=""
RUN=0 # of pytest
LINTING=(tests/commands/test_{lint,workflow}.py) # tests that run linters
WORKERS=4 # of the engines' tests, each with a Slurm of its own: more than cores, since many of them wait

stop_started() {
    local one service number
    for one in "${STARTED[@]}"; do
        read -r service number <<<"$one"
        "$CHECKOUT/tests/testbed/$service.sh" stop ${number:+"$number"} || true
    done
    STARTED=()
}

clean_up() { # ends what was started, and removes what the tests wrote
    if [ -n "$ASIDE" ]; then
        kill -INT -- "-$ASIDE" 2>/dev/null || true
        join_aside || true
    fi
    stop_started
    if [ -n "$TEMPORARY" ]; then unmount_scratch "$TEMPORARY"; fi
}

use_scratch() { # use_scratch GIB: the tests write in memory where so much of it is free; all but 8 GiB may be used
    TEMPORARY=$(mount_scratch "$1")
}

interrupted() { # interrupted SIGNAL-NUMBER: ends the tests in their own way, then what was started (by the exit trap)
    trap '' INT TERM
    if [ -n "$JOB" ]; then
        kill -INT -- "-$JOB" 2>/dev/null || true
        wait "$JOB" || true
    fi
    exit "$((128 + $1))"
}

as_job() { in_group as_user "$@"; } # runs a command as the user

in_group() { # runs a command in a process group of its own, so that a signal to this script can reach it
    local rc=0
    if [ -n "$NO_GROUP" ]; then
        "$@" </dev/null
        return
    fi
    set -m
    "$@" </dev/null &
    JOB=$!
    set +m
    wait "$JOB" || rc=$?
    JOB=""
    return "$rc"
}

run_aside() { # run_aside COMMAND...: in what the others leave of the cores; ends with `join_aside`
    set -m
    NO_GROUP=1 "$@" </dev/null >"$ASIDE_LOG" 2>&1 &
    ASIDE=$!
    set +m
    renice -n 5 -g "$ASIDE" >/dev/null
}

join_aside() { # waits for it, shows what it printed, and passes its exit code
    local rc=0
    wait "$ASIDE" || rc=$?
    ASIDE=""
    cat "$ASIDE_LOG"
    return "$rc"
}

start() { # start SERVICE [NUMBER]: started unless it runs; its address becomes part of the environment
    local address
    if ! "$CHECKOUT/tests/testbed/$1.sh" status "${@:2}" >/dev/null 2>&1; then STARTED+=("$*"); fi
    address=$("$CHECKOUT/tests/testbed/$1.sh" start "${@:2}")
    export "${address?}"
    say "$address"
}

start_slurms() { # one for each worker, all at one time; the first one's address becomes part of the environment
    local number other others=()
    for ((number = 2; number <= WORKERS; number++)); do
        if "$CHECKOUT/tests/testbed/slurm.sh" status "$number" >/dev/null 2>&1; then continue; fi
        STARTED+=("slurm $number")
        "$CHECKOUT/tests/testbed/slurm.sh" start "$number" >/dev/null &
        others+=("$!")
    done
    start slurm 1
    for other in "${others[@]}"; do wait "$other"; done
}

install_engines() { # and the environments of Python, which are enough for tests without engines
    "$CHECKOUT/tests/testbed/engines.sh" apptainer docker registry tools slurm launch browser shells
    "$CHECKOUT/tests/testbed/venv.sh" cotainr impi # it updates the copy of the checkout: before anything reads that
    trap clean_up EXIT
    test_environment
    use_scratch 20
    cd "$WORKTREE"
}

start_engines() {
    start docker
    start registry
    start_slurms
    "$CHECKOUT/tests/testbed/base-image.sh" >/dev/null
    test_environment
    local name
    for name in DOCKER_HOST SLURM_CONF RECIPE_TEST_{REGISTRY,BASE_SIF,BASE_TAR,COTAINR,IMPI}; do
        [ -n "${!name:-}" ] || die 5 "the test environment lacks $name"
    done
}

prepare_python() {
    command -v python3 >/dev/null || die 4 "python3 is missing on this machine" "tests/testbed/engines.sh tools"
    if is_root; then "$CHECKOUT/tests/testbed/engines.sh" tools; fi
    "$CHECKOUT/tests/testbed/venv.sh" || exit # `&&` below makes bash go on
    trap clean_up EXIT
    test_environment
    use_scratch 14
    cd "$WORKTREE"
}

lint() { # all linters, also after one that finds something
    local rc=0
    as_job ruff check . || rc=1
    as_job ruff format --check . || rc=1
    as_job mypy || rc=1
    as_job shellcheck --external-sources tests/testbed/*.sh .ci/run || rc=1
    tests -q tests/source || rc=1
    return "$rc"
}

tests() { # as the user; in memory each call has a folder of its own, which is removed afterwards
    local rc=0 options=$PYTEST_ADDOPTS
    RUN=$((RUN + 1))
    local folder="$TEMPORARY/${NO_GROUP:+a}$RUN"
    if [ -n "$TEMPORARY" ]; then options+=" --basetemp='$folder' -o tmp_path_retention_policy=failed"; fi
    as_job env "PYTEST_ADDOPTS=$options" python -m pytest "$@" || rc=$?
    if [ -n "$TEMPORARY" ]; then rm -rf "$folder" 2>/dev/null || true; fi
    return "$rc"
}

terminal() { # apart from the others, whose conftest.py it must not share; as an ordinary user always
    tests -n 2 tests/terminal "$@"
}

users() { # as root, who alone can act as two users; as an ordinary user it is said and is no failure of `all`
    if ! is_root; then
        say "not run: tests/users, in which root acts as two users and mounts images (as root: make users)"
        return
    fi
    in_group env "PATH=$STATE/venv/bin:$PATH" PYTHONDONTWRITEBYTECODE=1 "PYTEST_ADDOPTS=$ADDOPTS" \
        python -m pytest -p no:cacheprovider -n 2 tests/users "$@"
}

everything() { # with arguments of the caller's the linters and one call of pytest, without any each height
    local rc=0 linted=0
    install_engines
    if [ $# -gt 0 ]; then
        start_engines
        lint || linted=$?
        tests "$@" || exit $?
        [ "$linted" -eq 0 ] || die 1 "the tests pass, a linter does not: see above"
        return
    fi
    # What has no time limits takes what waiting tests leave of the cores.
    run_aside lint_and_unit
    start_engines
    tests -n 2 tests/fuzz tests/commands "${LINTING[@]/#/--ignore=}" || rc=$?
    terminal || rc=$?
    users || rc=$?
    tests -n "$WORKERS" --durations=60 tests/engines || rc=$?
    say "== linters and unit tests, which ran at the same time"
    join_aside || rc=$?
    return "$rc"
}

lint_and_unit() { # linters, of what is generated too, and unit tests: all of them, also after one that fails
    local rc=0
    lint || rc=$?
    tests -n 2 -m "property or not property" tests/unit tests/oracles tests/verdicts "${LINTING[@]}" || rc=$?
    return "$rc"
}

fuzz() { # with a seed of its own each time; a seed that found a fault is printed, and finds it again
    as_job env "FUZZ_SECONDS=${FUZZ_SECONDS:-60}" "FUZZ_CASES=${FUZZ_CASES:-0}" "FUZZ_SEED=${FUZZ_SEED:-$(date +%s%N)}" \
        python tests/fuzz/run.py "$@"
}

rewrite_golden() { # in the checkout itself: pure Python, no engine, and the files are meant to be committed
    cd "$CHECKOUT"
    PYTHONPATH=$CHECKOUT PYTHONDONTWRITEBYTECODE=1 \
        "$STATE/venv/bin/python" -m pytest -p no:cacheprovider tests/unit/test_{golden,resolve,pictures}.py --update-golden "$@"
}

docs() { # in the checkout itself, into a folder that git ignores
    cd "$CHECKOUT"
    "$STATE/venv/bin/python" -m mkdocs build --strict "$@"
}

bench() {
    if [ $# -eq 0 ]; then set -- startup compile overhead peers; fi
    as_job python tests/benchmarks/run.py "$@"
}

trap 'interrupted 2' INT
trap 'interrupted 15' TERM
ADDOPTS=${PYTEST_ADDOPTS:-} # the caller's
# The checkout may be read-only.
export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} -o cache_dir='$STATE/pytest-cache'"
what=${1:-all}
if [ $# -gt 0 ]; then shift; fi
case $what in
    all) everything "$@" ;;
    unit) prepare_python && tests -n 2 tests/unit tests/oracles tests/verdicts "$@" ;;
    source) prepare_python && tests tests/source "$@" ;;
    properties) prepare_python && tests -n 2 -m property tests/unit tests/verdicts "$@" ;;
    fuzz) prepare_python && fuzz "$@" ;;
    commands) prepare_python && tests -n 2 tests/commands "$@" ;;
    terminal) prepare_python && terminal "$@" ;;
    users)
        is_root || die 4 "tests/users act as two users, and only root can" "run it as root, or leave them to CI"
        prepare_python && users "$@"
        ;;
    lint) prepare_python && lint ;;
    docs) prepare_python && docs "$@" ;;
    golden) prepare_python && rewrite_golden "$@" ;;
    bench)
        install_engines
        start_engines
        bench "$@"
        ;;
    *) die 2 "\"$what\" is no kind of check" "tests/testbed/test.sh all|unit|source|properties|commands|terminal|users|fuzz|lint|docs|golden|bench" ;;
esac

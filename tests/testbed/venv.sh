#!/usr/bin/env bash
# Makes the virtual environments, once: tests/testbed/venv.sh [cotainr] [impi]
#   venv           this package, editable, with its development tools; made again only when pyproject.toml changes
#   venv-cotainr   with "cotainr": the real cotainr, apart, as on a supercomputer
#   venv-impi      with "impi": Intel MPI's launcher, for its mpiexec (83 MB to load, 190 MB on disk, 2 s here)
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

COTAINR=cotainr==2025.7.1
IMPI=impi-rt==2021.15.0 # of the oneAPI that Dawn's jobs load
LOG=$STATE/logs/venv.log

choose_python() { # prints a Python >= 3.10 that the user can run: as root Debian's own, another may lie in root's home
    local python=/usr/bin/python3
    if ! is_root; then python=$(command -v python3 || true); fi
    as_user "${python:-python3}" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        die 4 "no Python 3.10 or newer with its venv module" "tests/testbed/engines.sh tools"
    echo "$python"
}

make_venv() { # make_venv FOLDER STAMP PIP-ARGUMENT...: made when its stamp file does not hold STAMP
    local folder=$1 stamp=$2 python
    shift 2
    if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ]; then return 0; fi
    say "making $folder"
    python=$(choose_python)
    # The environment is used by whoever runs meanwhile: brought up to date in place where it exists.
    if ! { [ -x "$folder/bin/python" ] || as_user "$python" -m venv "$folder"; } ||
        ! as_user "$folder/bin/python" -m pip install --quiet "$@" >>"$LOG" 2>&1; then
        tail -n 20 "$LOG" >&2
        die 5 "could not install $*" "see $LOG"
    fi
    echo "$stamp" | as_user tee "$folder/stamp" >/dev/null
}

require_user
touch "$LOG"
exec 8>"$STATE/logs/venv.lock"
flock 8
[ -f "$CHECKOUT/pyproject.toml" ] || die 2 "no pyproject.toml in $CHECKOUT"
update_worktree
make_venv "$STATE/venv" "$(sha256sum <"$CHECKOUT/pyproject.toml")" --editable "${WORKTREE}[dev]"
for more in "$@"; do
    case $more in
        cotainr) make_venv "$STATE/venv-cotainr" "$COTAINR" "$COTAINR" ;;
        impi) make_venv "$STATE/venv-impi" "$IMPI" --no-deps "$IMPI" ;;
        *) die 2 "\"$more\" is no environment" "tests/testbed/venv.sh [cotainr] [impi]" ;;
    esac
done

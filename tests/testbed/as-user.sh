#!/usr/bin/env bash
# Runs a command as the unprivileged user, in that user's up-to-date copy of the checkout when called from the checkout.
#   tests/testbed/as-user.sh apptainer --version
#   tests/testbed/as-user.sh pytest tests/engines
# As an ordinary user it only runs the command.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

[ $# -gt 0 ] || die 2 "no command given" "tests/testbed/as-user.sh COMMAND [ARGUMENT...]"
require_user
test_environment
update_worktree
if is_root; then
    case $PWD/ in
        "$CHECKOUT"/*) cd "$WORKTREE${PWD#"$CHECKOUT"}" 2>/dev/null || cd "$WORKTREE" ;;
    esac
fi
as_user "$@"

#!/usr/bin/env bash
# An image registry of the demo and the tests, on the loopback address alone: tests/testbed/registry.sh start|stop|status
# Prints RECIPE_TEST_REGISTRY=127.0.0.1:PORT. Plain http; Docker trusts 127.0.0.0/8, Apptainer needs --no-https.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

FOLDER=$STATE/registry
PIDFILE=$FOLDER/registry.pid
ADDRESS=$FOLDER/address
LOG=$STATE/logs/registry.log

free_port() { # prints 5000 or, where that is taken, one the system gives
    python3 -c '
import socket
for port in (5000, 0):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(probe.getsockname()[1])
        break
'
}

write_config() {
    as_user tee "$FOLDER/config.yml" >/dev/null <<YAML
version: 0.1
log: {level: warn}
storage:
  filesystem: {rootdirectory: $FOLDER/data}
  delete: {enabled: true}
http: {addr: "127.0.0.1:$1"}
YAML
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_registry() {
    local port tries=0
    command -v docker-registry >/dev/null || die 4 "docker-registry is missing on this machine" "tests/testbed/engines.sh registry"
    port=$(free_port)
    write_config "$port"
    # exec all the way down: the pid written is the registry's own.
    # shellcheck disable=SC2016 # the inner shell's parameters
    as_user sh -c 'echo $$ >"$1"; exec setsid nohup docker-registry serve "$2" </dev/null >"$3" 2>&1' \
        - "$PIDFILE" "$FOLDER/config.yml" "$LOG" >/dev/null 2>&1 8>&- 9>&- &
    until owns "$PIDFILE" docker-registry && answers "$port"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 100 ]; then
            tail -n 15 "$LOG" >&2
            die 5 "the registry did not come up" "see $LOG"
        fi
        sleep 0.1
    done
    echo "127.0.0.1:$port" | as_user tee "$ADDRESS" >/dev/null
}

case ${1:-} in
    start)
        require_user
        exec 8>"$STATE/logs/registry.lock"
        flock 8
        if ! owns "$PIDFILE" docker-registry; then start_registry; fi
        echo "RECIPE_TEST_REGISTRY=$(cat "$ADDRESS")"
        ;;
    stop)
        end_process "$PIDFILE" docker-registry
        rm -f "$ADDRESS"
        ;;
    status)
        if owns "$PIDFILE" docker-registry; then
            echo "RECIPE_TEST_REGISTRY=$(cat "$ADDRESS")"
        else
            echo "not running"
            exit 1
        fi
        ;;
    *) die 2 "\"${1:-}\" is no command" "tests/testbed/registry.sh start|stop|status" ;;
esac

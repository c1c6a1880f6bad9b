#!/usr/bin/env bash
# A private Docker daemon of the demo and the tests: tests/testbed/docker.sh start|stop|status
# Prints DOCKER_HOST=... . It has its own socket, data and pid file in the state folder; stop ends that daemon alone.
# An ordinary user starts none: a daemon that DOCKER_HOST or the default socket reaches is used.
#
# Which docker client: PATH of the unprivileged user has /usr/bin before /usr/local/bin. Debian's own client has BuildKit
# built in (DOCKER_BUILDKIT=1); a newer standalone client needs the buildx plug-in for it.
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

FOLDER=$STATE/docker
SOCKET=$FOLDER/docker.sock
PIDFILE=$FOLDER/dockerd.pid
LOG=$FOLDER/dockerd.log

client() { # Debian's client where there is one, so that the check is made with what the tests use
    PATH=/usr/bin:$PATH command docker "$@"
}

answers() { client --host "$1" version --format '{{.Server.Version}}' 2>/dev/null; }

start_daemon() {
    local tries=0
    rm -f "$SOCKET" "$PIDFILE"
    # The socket belongs to the user's group; data stays root's.
    setsid nohup dockerd --host "unix://$SOCKET" --group "$DEV_USER" --data-root "$FOLDER/data" \
        --exec-root "$FOLDER/run" --pidfile "$PIDFILE" </dev/null >"$LOG" 2>&1 8>&- 9>&- &
    local pid=$!
    until answers "unix://$SOCKET" >/dev/null; do
        tries=$((tries + 1))
        if ! kill -0 "$pid" 2>/dev/null || [ "$tries" -gt 300 ]; then
            tail -n 15 "$LOG" >&2
            die 5 "the Docker daemon did not come up" "see $LOG"
        fi
        sleep 0.1
    done
}

builds() { DOCKER_BUILDKIT=1 "$1" build --help >/dev/null 2>&1; }

choose_client() { # the docker on PATH, or Debian's where that one lacks the plug-in for BuildKit (as_user has $STATE/bin)
    rm -f "$STATE/bin/docker"
    if builds docker; then return 0; fi
    builds /usr/bin/docker || die 4 "docker cannot build with BuildKit: its plug-in buildx is missing" "install docker-buildx"
    mkdir -p "$STATE/bin"
    ln -s /usr/bin/docker "$STATE/bin/docker"
}

reachable_by_user() { # an ordinary user's daemon: prints the address or explains
    local host=${DOCKER_HOST:-unix:///var/run/docker.sock}
    command -v docker >/dev/null || die 4 "docker is missing on this machine" "tests/testbed/engines.sh docker"
    answers "$host" >/dev/null ||
        die 4 "no Docker daemon answers at $host" "start one you may use (rootless: dockerd-rootless.sh) and set DOCKER_HOST"
    choose_client
    echo "DOCKER_HOST=$host"
}

case ${1:-} in
    start)
        if ! is_root; then
            reachable_by_user
            exit
        fi
        require_user
        exec 8>"$STATE/logs/docker.lock"
        flock 8
        if ! owns "$PIDFILE" dockerd; then start_daemon; fi
        echo "DOCKER_HOST=unix://$SOCKET"
        ;;
    stop)
        if is_root; then
            end_process "$PIDFILE" dockerd
            rm -f "$SOCKET"
        fi
        ;;
    status)
        if ! is_root; then
            reachable_by_user
        elif owns "$PIDFILE" dockerd; then
            echo "DOCKER_HOST=unix://$SOCKET"
        else
            echo "not running"
            exit 1
        fi
        ;;
    *) die 2 "\"${1:-}\" is no command" "tests/testbed/docker.sh start|stop|status" ;;
esac

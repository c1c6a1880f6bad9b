#!/usr/bin/env bash
# A private Slurm of two nodes on this one machine: tests/testbed/slurm.sh start|stop|status [NUMBER]   (real sbatch and srun)
# There may be several, of number 1 (what is meant without one) to 9; `stop` without a number stops all. Tests that run at
# the same time have one each: the jobs of one do not wait for the nodes of another, and have other numbers and ports.
# Prints SLURM_CONF=... . Nodes n1 and n2, two CPUs and two "GPUs" each (CUDA_VISIBLE_DEVICES is set as on a GPU node),
# partition "test", and "crowd" where jobs that only wait share the cores; own munge key, ports, pid files and spool folders in the state folder. All of it runs as the
# unprivileged user and takes that user's jobs alone; a Slurm the machine may have is never touched, and several users may
# have one each. The names n1 and n2 have to mean this machine: as root they are added to /etc/hosts (clean.sh takes them out).
set -euo pipefail
# shellcheck source=tests/testbed/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

NODES=(n1 n2)

choose() { # choose NUMBER: the Slurm that is meant
    [[ $1 == [1-9] ]] || die 2 "\"$1\" is no number of a Slurm" "give one of 1 to 9"
    NUMBER=$1
    FOLDER=$STATE/slurm
    if [ "$NUMBER" -gt 1 ]; then FOLDER=$STATE/slurm-$NUMBER; fi
    export SLURM_CONF=$FOLDER/slurm.conf
    # Of slurmctld and of each node; another user's Slurm may have them.
    FIRST_PORTS=("$((16816 + NUMBER))" "$((16991 + 10 * NUMBER))" "$((16992 + 10 * NUMBER))")
}

name_nodes() { # ranks meet at the first node by its name: it has to mean this machine, to containers as well
    local node missing=()
    for node in "${NODES[@]}"; do
        [[ $(getent ahostsv4 "$node") == 127.* ]] || missing+=("$node")
    done
    if [ "${#missing[@]}" -eq 0 ]; then return 0; fi
    local line="127.0.0.1 ${missing[*]} # nodes of $STATE/slurm"
    is_root || die 4 "this machine does not know the test nodes ${missing[*]} by name" "echo '$line' | sudo tee -a /etc/hosts"
    echo "$line" >>/etc/hosts || die 4 "/etc/hosts cannot be written" "add the line: $line"
}

forget_nodes() { # takes the line out again; the file itself stays, it may be mounted from elsewhere
    local kept
    if ! is_root || ! grep -qF "# nodes of $STATE/slurm" /etc/hosts; then return 0; fi
    kept=$(grep -vF "# nodes of $STATE/slurm" /etc/hosts || true)
    printf '%s\n' "$kept" >/etc/hosts
}

free_ports() { # prints three ports, the first choice where it is free
    python3 -c '
import socket, sys
taken = []
for first in map(int, sys.argv[1:]):
    for port in (first, 0):
        probe = socket.socket()
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        taken.append(probe)
        break
print(*(probe.getsockname()[1] for probe in taken))
' "${FIRST_PORTS[@]}"
}

ready() { # both nodes answer
    [ -f "$SLURM_CONF" ] && owns "$FOLDER/slurmctld.pid" slurmctld &&
        [ "$(sinfo --noheader --Node --partition=test --states=idle,mix,alloc 2>/dev/null | wc -l)" -eq 2 ]
}

write_config() {
    local host user ports
    host=$(hostname -s)
    read -r -a ports <<<"$(free_ports)"
    user=$(as_user id -un)
    as_user tee "$SLURM_CONF" >/dev/null <<CONF
ClusterName=recipe-dev
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmctldParameters=enable_configless
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$FOLDER/munge/socket
CredType=cred/munge
StateSaveLocation=$FOLDER/state
SlurmctldPidFile=$FOLDER/slurmctld.pid
SlurmctldLogFile=$FOLDER/slurmctld.log
SlurmdPidFile=$FOLDER/slurmd.%n.pid
SlurmdLogFile=$FOLDER/slurmd.%n.log
SlurmdSpoolDir=$FOLDER/spool.%n
SlurmdParameters=config_overrides
FirstJobId=$((1 + 1000 * (NUMBER - 1)))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
TaskPluginParam=None
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
KillWait=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
GresTypes=gpu
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=2 RealMemory=8000 Gres=gpu:2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=2 RealMemory=8000 Gres=gpu:2
PartitionName=test Nodes=n[1-2] Default=YES MaxTime=60 State=UP
PartitionName=crowd Nodes=n[1-2] MaxTime=60 OverSubscribe=FORCE:4 State=UP
CONF
    # Any two device files do: Slurm only counts them. Each "GPU" is near to one core, for --gpu-bind=closest.
    as_user tee "$FOLDER/gres.conf" >/dev/null <<CONF
NodeName=n[1-2] Name=gpu File=/dev/null Cores=0
NodeName=n[1-2] Name=gpu File=/dev/zero Cores=1
CONF
    as_user tee "$FOLDER/cgroup.conf" >/dev/null <<<"CgroupAutomount=no"
}

any_daemon() {
    local node
    owns "$FOLDER/slurmctld.pid" slurmctld && return 0
    for node in "${NODES[@]}"; do owns "$FOLDER/slurmd.$node.pid" slurmd && return 0; done
    return 1
}

start_munge() {
    if [ ! -f "$FOLDER/munge/key" ]; then
        # shellcheck disable=SC2016 # the inner shell's parameter
        head -c 1024 /dev/urandom | as_user sh -c 'umask 077 && cat >"$1"' - "$FOLDER/munge/key"
    fi
    local -a force=()
    # munged wants a socket that every user of the machine can reach; this one is for ours, below a home that may be closed.
    if ! is_root; then force=(--force); fi
    as_user munged "${force[@]}" --key-file "$FOLDER/munge/key" --socket "$FOLDER/munge/socket" --pid-file "$FOLDER/munge/munged.pid" \
        --log-file "$FOLDER/munge/log" --seed-file "$FOLDER/munge/seed" 9>&-
}

start_slurm() {
    local node tries=0
    as_user mkdir -p "$FOLDER"/{state,munge} "${NODES[@]/#/$FOLDER/spool.}"
    any_daemon || write_config # those that still run have read it
    owns "$FOLDER/munge/munged.pid" munged || start_munge
    owns "$FOLDER/slurmctld.pid" slurmctld || as_user slurmctld 9>&-
    for node in "${NODES[@]}"; do
        owns "$FOLDER/slurmd.$node.pid" slurmd || as_user slurmd -N "$node" 9>&-
    done
    until ready; do
        tries=$((tries + 1))
        if [ "$tries" -gt 100 ]; then
            tail -n 5 "$FOLDER"/*.log >&2
            die 5 "Slurm did not come up" "see $FOLDER/*.log"
        fi
        sleep 0.2
    done
}

stop_slurm() {
    local node
    exec 9>"$STATE/logs/slurm-$NUMBER.lock"
    flock 9 # it may be starting
    if ready; then as_user scancel --user="$(as_user id -un)" || true; fi
    for node in "${NODES[@]}"; do end_process "$FOLDER/slurmd.$node.pid" slurmd; done
    end_process "$FOLDER/slurmctld.pid" slurmctld
    end_process "$FOLDER/munge/munged.pid" munged
}

choose "${2:-1}"
case ${1:-} in
    start)
        require_user
        exec 8>"$STATE/logs/slurm.lock" 9>"$STATE/logs/slurm-$NUMBER.lock"
        flock 9
        flock 8 # for what all of them share
        name_nodes
        exec 8>&-
        ready || start_slurm
        echo "SLURM_CONF=$SLURM_CONF"
        ;;
    stop)
        if [ $# -gt 1 ]; then
            stop_slurm
        else
            for NUMBER in {1..9}; do
                choose "$NUMBER"
                if [ -d "$FOLDER" ]; then stop_slurm; fi
            done
        fi
        ;;
    forget) forget_nodes ;; # for tests/testbed/clean.sh
    status)
        if ready; then
            echo "SLURM_CONF=$SLURM_CONF"
        else
            echo "not running"
            exit 1
        fi
        ;;
    *) die 2 "\"${1:-}\" is no command" "tests/testbed/slurm.sh start|stop|status [NUMBER]" ;;
esac

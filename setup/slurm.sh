#!/usr/bin/env bash
# A private Slurm of two nodes on this one machine: setup/slurm.sh start|stop|status   (real sbatch and srun)
# Prints SLURM_CONF=... . Nodes n1 and n2, two CPUs and two "GPUs" each (CUDA_VISIBLE_DEVICES is set as on a GPU node),
# partition "test"; own munge key, ports, pid files and spool folders in the state folder. All of it runs as the
# unprivileged user and takes that user's jobs alone; a Slurm the machine may have is never touched.
set -euo pipefail
# shellcheck source=setup/state.sh
. "$(dirname "${BASH_SOURCE[0]}")/state.sh"

FOLDER=$STATE/slurm
export SLURM_CONF=$FOLDER/slurm.conf
NODES=(n1 n2)

ready() { # both nodes answer
    [ -f "$SLURM_CONF" ] && [ "$(sinfo --noheader --Node --states=idle,mix,alloc 2>/dev/null | wc -l)" -eq 2 ]
}

write_config() {
    local host user
    host=$(hostname -s)
    user=$(as_user id -un)
    as_user tee "$SLURM_CONF" >/dev/null <<CONF
ClusterName=recipe-dev
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
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
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
GresTypes=gpu
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=8000 Gres=gpu:2
PartitionName=test Nodes=n[1-2] Default=YES MaxTime=60 State=UP
CONF
    # Any two device files do: Slurm only counts them.
    as_user tee "$FOLDER/gres.conf" >/dev/null <<<"NodeName=n[1-2] Name=gpu Count=2 File=/dev/null,/dev/zero"
    as_user tee "$FOLDER/cgroup.conf" >/dev/null <<<"CgroupAutomount=no"
}

start_munge() {
    if [ ! -f "$FOLDER/munge/key" ]; then
        # shellcheck disable=SC2016 # the inner shell's parameter
        head -c 1024 /dev/urandom | as_user sh -c 'umask 077 && cat >"$1"' - "$FOLDER/munge/key"
    fi
    as_user munged --key-file "$FOLDER/munge/key" --socket "$FOLDER/munge/socket" --pid-file "$FOLDER/munge/munged.pid" \
        --log-file "$FOLDER/munge/log" --seed-file "$FOLDER/munge/seed" 8>&-
}

start_slurm() {
    local node tries=0
    as_user mkdir -p "$FOLDER"/{state,munge} "${NODES[@]/#/$FOLDER/spool.}"
    write_config
    owns "$FOLDER/munge/munged.pid" munged || start_munge
    owns "$FOLDER/slurmctld.pid" slurmctld || as_user slurmctld 8>&-
    for node in "${NODES[@]}"; do
        owns "$FOLDER/slurmd.$node.pid" slurmd || as_user slurmd -N "$node" 8>&-
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
    if ready; then as_user scancel --partition=test || true; fi
    for node in "${NODES[@]}"; do end_process "$FOLDER/slurmd.$node.pid" slurmd; done
    end_process "$FOLDER/slurmctld.pid" slurmctld
    end_process "$FOLDER/munge/munged.pid" munged
}

case ${1:-} in
    start)
        require_user
        exec 8>"$STATE/logs/slurm.lock"
        flock 8
        ready || start_slurm
        echo "SLURM_CONF=$SLURM_CONF"
        ;;
    stop) stop_slurm ;;
    status)
        if ready; then
            echo "SLURM_CONF=$SLURM_CONF"
        else
            echo "not running"
            exit 1
        fi
        ;;
    *) die 2 "\"${1:-}\" is no command" "setup/slurm.sh start|stop|status" ;;
esac

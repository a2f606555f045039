#!/usr/bin/env bash
# A real SLURM of one node on this machine, for tests and benchmarks: local_slurm.sh start|stop|status
#
# Needs root and Debian's packages: apt-get install slurm-wlm munge. Everything lies in $GAITWAY_SLURM (default
# /var/tmp/gaitway_slurm); commands find it by SLURM_CONF, which `start` prints.
set -euo pipefail

place=${GAITWAY_SLURM:-/var/tmp/gaitway_slurm}
export SLURM_CONF=$place/slurm.conf
name=$(hostname -s)

start() {
    for needed in slurmctld slurmd munged sbatch; do
        command -v "$needed" > /dev/null || { echo "$needed is missing; apt-get install slurm-wlm munge"; exit 1; }
    done
    [ "$(id -u)" = 0 ] || { echo "SLURM's daemons are started by root; use sudo"; exit 1; }
    mkdir -p "$place/state" "$place/spool" "$place/log"
    cores=$(nproc)
    memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
    cat > "$SLURM_CONF" <<CONF
ClusterName=local
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/log/slurmctld.log
SlurmdLogFile=$place/log/slurmd.log
JobRequeue=1
NodeName=$name NodeAddr=127.0.0.1 CPUs=$cores RealMemory=$memory State=UNKNOWN
PartitionName=local Nodes=$name Default=YES MaxTime=INFINITE State=UP
CONF
    if ! munge -n > /dev/null 2>&1; then
        mkdir -p /run/munge /var/log/munge /var/lib/munge
        chown munge: /run/munge /var/log/munge /var/lib/munge /etc/munge
        [ -f /etc/munge/munge.key ] || { head -c 1024 /dev/urandom > /etc/munge/munge.key; }
        chown munge: /etc/munge/munge.key && chmod 400 /etc/munge/munge.key
        runuser -u munge -- "$(command -v munged)"
    fi
    slurmctld
    slurmd
    for _ in $(seq 60); do
        if sinfo -h -o %T 2> /dev/null | grep -q "idle\|mixed\|allocated"; then
            echo "export SLURM_CONF=$SLURM_CONF"
            return
        fi
        scontrol update nodename="$name" state=resume 2> /dev/null || true
        sleep 1
    done
    echo "the node does not come up; see $place/log" >&2
    exit 1
}

stop() {
    for daemon in slurmd slurmctld; do
        if [ -f "$place/$daemon.pid" ]; then
            kill "$(cat "$place/$daemon.pid")" 2> /dev/null || true
        fi
    done
    for _ in $(seq 30); do
        [ -f "$place/slurmd.pid" ] || [ -f "$place/slurmctld.pid" ] || break
        sleep 1
    done
    rm -rf "$place"
}

case "${1:-}" in
    start) start ;;
    stop) stop ;;
    status) sinfo ;;
    *) echo "usage: $0 start|stop|status"; exit 2 ;;
esac

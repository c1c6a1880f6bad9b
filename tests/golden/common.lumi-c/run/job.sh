# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
. run/settings.sh
read_settings run/site.env
keep_own PYTHONUNBUFFERED SLURM_MPI_TYPE
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || fail "scontrol does not name the nodes of this job"
MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_ADDR
site_variable PYTHONUNBUFFERED "1"
site_variable SLURM_MPI_TYPE "pmi2"

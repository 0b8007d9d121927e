#!/bin/sh
# A Dask cluster on a list of hosts that you reach by ssh, with TLS between them.
#
#     sh certificates.sh ~/dask-tls          (once; then copy the folder to the same place on every host)
#     sh hosts.sh ~/dask-tls HOST1 HOST2 …
#
# The scheduler runs here, on every host one worker a core. Each host needs the same fermibose[paper] and the module of
# the measurement. Ctrl-C ends everything. Meanwhile, elsewhere:
#
#     DASK_CONFIG=~/dask-tls/dask.yaml fbm reproduce fig4 --full --folder FOLDER --engine tls://HERE:8786
set -eu
folder=$(cd "$1" && pwd)
shift
DASK_CONFIG="$folder/dask.yaml"
export DASK_CONFIG
address="tls://$(hostname -f):8786"
dask scheduler --port 8786 --no-dashboard &
trap 'kill $(jobs -p)' EXIT INT TERM
for host in "$@"; do
  # The remote shell counts the cores; -tt lets the workers end with this script.
  ssh -tt "$host" "DASK_CONFIG='$folder/dask.yaml' dask worker '$address' --nthreads 1 --nworkers \$(nproc) --no-dashboard" &
done
wait

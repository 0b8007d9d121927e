"""A sweep on a SLURM cluster: dask-jobqueue asks for workers, and the sweep sees their scheduler.

    pip install 'dask-jobqueue>=0.8.2'
    sh certificates.sh ~/dask-tls      once, on a file system that the nodes share
    DASK_CONFIG=~/dask-tls/dask.yaml python slurm.py

on the login node, or better in a small job of its own. Not run by the project's tests, which have
no SLURM.
"""

from dask_jobqueue import SLURMCluster
from distributed import Client, Security
from measures import digits  # a module that the workers can import

from fermibose_paper import Job, run

if __name__ == "__main__":
    jobs = [Job(digits, {"d_f": d_f}, seed=0, data="digits") for d_f in (0.2, 0.4)]
    with SLURMCluster(
        queue="normal",  # a partition of yours
        cores=16,
        processes=16,  # a worker has one thread
        memory="32GB",
        walltime="02:00:00",
        protocol="tls://",
        security=Security(),  # the certificates of DASK_CONFIG
        job_script_prologue=["export OMP_NUM_THREADS=1"],
    ) as cluster:
        cluster.scale(jobs=4)  # 64 workers, as the queue grants them
        with Client(cluster) as client:
            client.wait_for_workers(1)  # a sweep gives up on a cluster without any
            for row in run(jobs, "digits.db", engine=cluster.scheduler_address).rows:
                print(row.params, row.result)

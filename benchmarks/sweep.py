"""Sweeps that are killed, and what the machinery costs.

    python benchmarks/sweep.py           print the figures
    python benchmarks/sweep.py check     exit with 1 if a store differs or a limit is exceeded

Kills: a sweep of quick jobs is killed with ``kill -9`` at twenty random moments, in turn the whole
run and one of its workers, and resumed each time; its store must equal that of an undisturbed run.
Cost: the time per job of a sweep of two worker processes over that of the job alone; how many
jobs that do nothing two workers finish in a second, workers up; the processor time of finding
100,000 jobs finished.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fermibose_paper import Job, Store, engine_named, measurement, run
from fermibose_paper.job import measurement_of
from fermibose_paper.store import Answer

KILLS, JOBS, PAUSE = 20, 200, 0.2
COST_JOBS, COST_PAUSE, COST_LIMIT = 20, 1.0, 1.1
TINY_JOBS, TINY_RATE = 2000, 200.0
FINISHED_JOBS, FINISHED_SECONDS = 100_000, 3.0


@measurement("dawdle", version=1)
def dawdle(*, scale: float, seed: int, pause: float) -> dict[str, float]:
    time.sleep(pause)
    return {"value": random.Random(seed).random() * scale}


def plan(number: int, pause: float) -> list[Job]:
    import sweep  # under its own name, by which workers find it

    context = {"pause": pause}
    return [Job(sweep.dawdle, {"scale": 0.1}, seed=n, context=context) for n in range(number)]


def children(process: subprocess.Popen[bytes]) -> list[int]:
    command = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process.pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "spawn_main" in line]


def killed(path: Path, seed: int) -> int:
    """Run a sweep to its end through all kills; returns how many hit."""
    chance = random.Random(seed)
    hits = 0
    command = [sys.executable, __file__, "victim", str(path)]
    process = subprocess.Popen(command)
    for number in range(KILLS):
        time.sleep(chance.uniform(0.1, 2.0))
        if process.poll() is not None:
            break
        workers = children(process)
        if number % 2 and workers:
            victim = chance.choice(workers)
            subprocess.run(["kill", f"-{signal.SIGKILL}", str(victim)], check=False)
        else:
            process.kill()
            process.wait()
            process = subprocess.Popen(command)
        hits += 1
    process.wait()
    return hits


def cost_of_a_job(folder: Path) -> float:
    """Time per further job, once the workers are up, in units of the job alone on two workers."""
    with engine_named("local:2") as engine:
        run(plan(2, 0.0), Store(folder / "warm.db"), engine=engine)
        started = time.perf_counter()
        run(plan(COST_JOBS, COST_PAUSE), Store(folder / "cost.db"), engine=engine)
        return (time.perf_counter() - started) / (COST_JOBS * COST_PAUSE / 2)


def tiny_jobs_a_second(folder: Path) -> float:
    with engine_named("local:2") as engine:
        run(plan(2, 0.0), Store(folder / "warmer.db"), engine=engine)
        started = time.perf_counter()
        run(plan(TINY_JOBS, 0.0), Store(folder / "tiny.db"), engine=engine)
        return TINY_JOBS / (time.perf_counter() - started)


def seconds_to_find_all_finished(folder: Path) -> float:
    """Of processor time, the making of the jobs included."""
    store = Store(folder / "finished.db")
    answer = Answer('{"value":0.5}', None, 0.0, {}, measurement_of(plan(1, 0.0)[0].function).source)
    store.record((job, answer) for job in plan(FINISHED_JOBS, 0.0))
    started = time.process_time()
    outcome = run(plan(FINISHED_JOBS, 0.0), store, engine="local:2")
    assert outcome.computed == 0
    return time.process_time() - started


def main(argument: str, *path: str) -> int:
    if argument == "victim":
        run(plan(JOBS, PAUSE), Store(path[0]), engine="local:2")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = (Path(folder) / name for name in ("whole.db", "resumed.db"))
        run(plan(JOBS, 0.0), Store(whole))
        hits = killed(resumed, seed=0)
        same = Store(resumed).digest() == Store(whole).digest()
        print(f"{hits} kills, {len(Store(resumed).finished())} of {JOBS} jobs: same store: {same}")
        cost = cost_of_a_job(Path(folder))
        rate = tiny_jobs_a_second(Path(folder))
        found = seconds_to_find_all_finished(Path(folder))
    print(f"time per job of {COST_PAUSE} s over the job alone: {cost:.3f} (≤ {COST_LIMIT})")
    print(f"jobs that do nothing, a second: {rate:.0f} (≥ {TINY_RATE:.0f})")
    print(f"{FINISHED_JOBS} finished jobs found in {found:.1f} s (≤ {FINISHED_SECONDS})")
    good = same and hits == KILLS and cost <= COST_LIMIT
    good = good and rate >= TINY_RATE and found <= FINISHED_SECONDS
    return 0 if good or argument != "check" else 1


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or [""])))

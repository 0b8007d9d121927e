"""Is the audit right about models of which the truth is known?

    python benchmarks/audit.py               all of tests/attacks/zoo.py and masks.py, three seeds
    python benchmarks/audit.py SEED [WORD]   one seed, and some: masked, honest, a kind, a name

A masked model is falsely established if an adaptive attack, on the net it hides, leaves less than
the stated robust accuracy by more than the tolerance; an honest one that is not established is a
false alarm. Exits with 1 if one is falsely established, or two are false alarms.
"""

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "attacks"))

from masks import MASKED, at_most
from zoo import HONEST, THREAT, Zoo

from fermibose.attacks import audit

TOLERANCE, QUERIES = 0.02, 300


def main(seeds: list[int], word: str) -> int:
    torch.set_num_threads(1)
    models = {name: ("honest", build) for name, build in HONEST.items()} | MASKED
    wrong = {"falsely established": 0, "false alarms": 0}
    for seed in seeds:
        zoo = Zoo.trained(seed)
        for name, (kind, build) in models.items():
            group = "honest" if kind == "honest" else "masked"
            if word not in f"{group} {kind} {name}":
                continue
            torch.manual_seed(seed)
            model = build(zoo)
            started = time.process_time()
            found = audit(
                model, zoo.x, zoo.y, THREAT,
                tolerance=TOLERANCE, square_queries=QUERIES, seed=seed, show=False,
            )  # fmt: skip
            seconds = time.process_time() - started
            most = 1.0 if kind == "honest" else at_most(model, zoo)
            surplus = found.robust_accuracy - most
            false = found.established and surplus > TOLERANCE
            alarm = kind == "honest" and not found.established
            wrong["falsely established"] += false
            wrong["false alarms"] += alarm
            failed = "; ".join(
                f"{check.name}: {check.evidence}" if alarm else check.name
                for check in found.checks
                if check.outcome == "FAILED"
            )
            print(
                f"{'WRONG' if false or alarm else '':5} {seed} {kind:19} {name:43} "
                f"clean {found.clean_accuracy:.2f} stated {found.robust_accuracy:.2f} "
                f"at most {most:.2f} {seconds:4.1f} s  {failed or 'established'}",
                flush=True,
            )
    print(", ".join(f"{count} {what}" for what, count in wrong.items()))
    return int(wrong["falsely established"] > 0 or wrong["false alarms"] > 1)


if __name__ == "__main__":
    which = sys.argv[1:]
    sys.exit(main([int(which[0])] if which else [0, 1, 2], which[1] if len(which) > 1 else ""))

"""The benchmark's report. Oracle: what it prints of ratios that are made up."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "theory.py"


def test_a_bound_that_cannot_be_tested_is_not_called_ok(monkeypatch, capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    ratios = [("fine", 0.5, 1.0), ("slow", 2.0, 1.0), ("workers", 0.9, None)]
    monkeypatch.setitem(main.__globals__, "measure", lambda: ratios)
    monkeypatch.setattr("sys.argv", ["theory.py", "check"])
    assert main() == 1
    verdicts = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["ok", "MISSED", "busy)"]

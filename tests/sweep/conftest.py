"""Shared set-up: no power cut is to be survived here, so stores of this process do not wait for
the disk. Those of other processes, which get killed, keep the real setting. And workers end with
the test that started them: dozens of idle ones take a good part of a core."""

import pytest

from fermibose_paper.cluster import DaskEngine


@pytest.fixture(autouse=True)
def closed_engines(monkeypatch):
    opened, start = [], DaskEngine._start

    def remember(engine):
        opened.append(engine)
        return start(engine)

    monkeypatch.setattr(DaskEngine, "_start", remember)
    yield
    for engine in opened:
        engine.close()


@pytest.fixture(autouse=True, scope="session")
def quick_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fermibose_paper.store._SYNCHRONOUS", "OFF")
        yield

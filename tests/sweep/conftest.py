"""Shared set-up: no power cut is to be survived here, so stores of this process do not wait for
the disk. Those of other processes, which get killed, keep the real setting."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def quick_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fermibose_paper.store._SYNCHRONOUS", "OFF")
        yield

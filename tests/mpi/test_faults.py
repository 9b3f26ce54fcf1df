"""A rank that is killed, frozen or wrong: all end, with one message, and leave nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.mpi import ranks

FATES = {
    "killed": (signal.SIGKILL, "is gone"),
    "frozen": (signal.SIGSTOP, "has not been heard of for 5 s: it is frozen"),
}


@pytest.mark.parametrize(("fate", "victim"), [("killed", 2), ("frozen", 0)])
def test_a_lost_rank_ends_all(fate: str, victim: int, tmp_path: Path) -> None:
    signal_number, words = FATES[fate]
    job = ranks.started(4, "long_run", tmp_path, 10**9)
    ranks.appeared(tmp_path / "running", job)
    processes = [int((tmp_path / f"rank-{rank}").read_text()) for rank in range(4)]
    os.kill(processes[victim], signal_number)
    end = ranks.ended(job)
    assert end.code != 0
    told = [line for line in end.err.splitlines() if line.startswith("hobnob:")]
    assert len(told) == 1, end.err
    assert f"Rank {victim} (agent {victim}) {words}" in told[0]
    assert "Traceback" not in end.err
    ranks.all_gone(processes)


def test_a_full_disk(tmp_path: Path) -> None:
    """Rank 0 writes: what it meets ends all, and the checkpoint before is good."""
    end = ranks.run(2, "long_run", tmp_path, 10**9, "checkpoint", "full disk")
    assert end.code != 0
    told = "could not be written"
    lines = [line for line in end.err.splitlines() if told in line]
    assert len(lines) == 1, end.err
    assert "File too large" in lines[0]
    assert "Rank 0 (agents 0, 1), which writes for all" in lines[0]
    ranks.all_gone([int((tmp_path / f"rank-{rank}").read_text()) for rank in range(2)])
    good = ranks.run(2, "long_run", tmp_path, 2000, "checkpoint", "resume")
    assert good.code == 0, good.err

"""A rank that is killed, frozen or wrong: all end, with one message, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from hobnob.runtimes.mpi import lifeline
from tests.mpi import ranks

pytestmark = pytest.mark.slow

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


class OneOfTwo:
    """A communicator, as far as the lifeline of rank 0 asks."""

    rank, size = 0, 2

    def allgather(self, mine: object) -> list[object]:
        return [mine, mine]


def test_a_rank_that_leaves_after_an_error_of_all_is_not_lost(monkeypatch) -> None:
    """It may be gone before rank 0 has told the error: that is what it was let go for."""
    here, there = socket.socketpair()
    monkeypatch.setattr(lifeline, "_connected", lambda comm, near: {1: lifeline._Peer(here)})
    ends: list[str] = []
    monkeypatch.setattr(lifeline.Lifeline, "_end", lambda self, words, aloud: ends.append(words))
    line = lifeline.Lifeline(OneOfTwo(), ["rank 0", "rank 1"], silence=5, patience=60)
    there.sendall(b'{"failed": "the disk is full"}\n')
    closing = threading.Thread(target=lambda: (there.recv(4096), there.recv(4096), there.close()))
    closing.start()
    line._note_failure(0, "the disk is full")
    assert line._settled.wait(5)
    closing.join(5)
    time.sleep(0.5)  # several looks at the line of a rank that has hung up
    assert ends == []
    line._close()


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

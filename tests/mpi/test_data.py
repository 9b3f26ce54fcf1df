"""Data where it lies: a rank reads the files of its own agents, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hobnob as hb
from tests.mpi import ranks
from tests.mpi.own_files import AGENTS, STEPS, solved, write_shards
from tests.test_choice import growing_curvature

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["common", "personal"])
def test_a_rank_never_opens_the_file_of_another(tmp_path: Path, kind: str) -> None:
    """Every open of the process is noted, not only those through the function."""
    write_shards(tmp_path)
    end = ranks.run(2, "own_files", tmp_path, kind)
    assert end.code == 0, end.err
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    for rank in found:
        own = {f"{kind}-{k}.npz" for k in rank["agents"] for kind in ("outer", "inner")}
        assert set(rank["opened"]) == own
    assert sorted(found[0]["agents"] + found[1]["agents"]) == list(range(AGENTS))
    # The same call in one process reads them all, and gives the same numbers.
    alone = solved(tmp_path, None, kind)
    for rank in found:
        for variable in ("x", "y"):
            np.testing.assert_allclose(rank[variable], alone.agents[variable], rtol=0, atol=1e-10)
        for column in ("outer_loss", "inner_loss", "consensus_x", "samples"):
            np.testing.assert_allclose(rank[column], alone.history[column], rtol=1e-12)
        assert set(alone.history) - set(rank["names"]) == {
            "objective",
            "gradient_norm",
            "inner_distance",
        }
    assert alone.steps == STEPS


def test_a_method_is_chosen_where_no_process_has_all_data(tmp_path: Path) -> None:
    """And another one takes over, from the same point on all ranks, where the first diverges."""
    write_shards(tmp_path)
    end = ranks.run(2, "chosen", tmp_path)
    assert end.code == 0, end.err
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert found[0] == found[1]
    assert found[0]["choice"].startswith("Adaptive was chosen. No process has all data")
    assert found[0]["loss"][-1] < found[0]["loss"][0] / 2
    alone = hb.solve(growing_curvature(), hb.ring(3), record_every=50)
    assert found[0]["staged choice"] == alone.choice
    assert found[0]["staged status"] == alone.status == "converged"
    np.testing.assert_allclose(found[0]["staged x"], alone.x, rtol=0, atol=1e-10)


def test_a_missing_file_ends_all(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / f"inner-{AGENTS - 1}.npz").unlink()
    end = ranks.run(2, "own_files", tmp_path, "common")
    assert end.code != 0
    told = [line for line in end.err.splitlines() if line.startswith("hobnob:")]
    assert len(told) == 1, end.err
    assert "Rank 1 (agents 3, 4, 5) has stopped: inner_data: the shard of agent 5" in told[0]
    assert "FileNotFoundError" in told[0]

"""Every algorithm on every network, with good and failing links, on 1, 2 and 4 ranks: an hour.

python -m tests.mpi.full_product OUT.json [NAME ...]
"""

from __future__ import annotations

import json
import sys
from itertools import product
from math import isinf
from pathlib import Path

import hobnob as hb
from tests.mpi import ranks
from tests.mpi.agree import Case, rounds


def cases_of(name: str) -> list[Case]:
    kind = hb.algorithms.get(name)
    steps = 150 if isinf(rounds(name)) else 1000
    if kind.single_agent:
        return [Case(name, "alone", "good", "2", steps)]
    links = ("good",) if kind.server else ("good", "failing")
    return [Case(name, n, l, "2", steps) for n, l in product(("ring", "star", "irregular"), links)]


def main(out: Path, names: list[str]) -> None:
    found = {}
    for name in names:
        for number in (1,) if hb.algorithms.get(name).single_agent else (1, 2, 4):
            part = out.with_suffix(f".{name}.{number}.json")
            end = ranks.run(number, "agree", part, *cases_of(name))
            assert end.code == 0, end.err
            found[f"{name}, {number} ranks"] = json.loads(part.read_text())
            part.unlink()
            worst = max(
                max(case["agents"], case["spread"])
                for case in found[f"{name}, {number} ranks"].values()
            )
            print(f"{name}, {number} ranks: {worst:.1e}", flush=True)
            out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or hb.algorithms.names())

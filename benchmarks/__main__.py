"""The table of benchmarks on this machine.

make bench                        all of it: table, runs/bench/bench.json, runs/bench/bench.png
make bench-check                  a short form; fails if a ratio fell by more than a third
python -m benchmarks dsbo start   some parts
python -m benchmarks --quick --store    store the ratios that bench-check compares with
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.table import HEADING, Row, save
from hobnob.ground.files import write_whole

PARTS = ("dsbo", "matrix_free", "policy", "scale", "start", "mpi_rounds", "peer_rounds")
CHECKED = ("dsbo", "matrix_free", "policy", "scale")  # parts with ratios to compare
STORED = Path(__file__).with_name("stored.json")
FALL = 2 / 3


def fell(row: Row, stored: dict[str, float]) -> str:
    """A message if a row is worse than before by more than a third, or nothing."""
    was = stored.get(f"{row.what}, against {row.against}")
    if was is None or not row.ratio:
        return ""
    better = was / row.value if row.at_most else row.value / was
    return "" if better >= FALL else f"{row.what}: {row.value:.3g}, was {was:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=(*PARTS, []))
    parser.add_argument("--quick", action="store_true", help="fewer turns, smaller sizes")
    parser.add_argument("--check", action="store_true", help="compare with the stored ratios")
    parser.add_argument("--store", action="store_true", help="store the ratios")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    options = parser.parse_args()
    quick = options.quick or options.check
    found: list[Row] = []
    print(HEADING)
    for part in options.parts or (CHECKED if quick else PARTS):
        for row in import_module(f"benchmarks.{part}").rows(quick):
            print(row, flush=True)
            found.append(row)
    if not options.check:
        save(found, options.out)
        print(f"\nWritten to {options.out}/bench.json and bench.png.")
    if options.store:
        ratios = {f"{row.what}, against {row.against}": row.value for row in found if row.ratio}
        write_whole(STORED, json.dumps(ratios, indent=2).encode() + b"\n")
    if options.check:
        stored = json.loads(STORED.read_text())
        worse = [said for row in found if (said := fell(row, stored))]
        print("\n" + ("\n".join(worse) or "No ratio fell by more than a third."))
        sys.exit(bool(worse))


if __name__ == "__main__":
    main()

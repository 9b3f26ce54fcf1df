"""Seeded faults against five owners in real processes over real TLS: what `make chaos` runs.

    python -m tests.peers.chaos --seed 0 --faults 200 [--minutes 12]

The faults come one after the other, in several runs; each run has held or dropped duals. After the
faults of a run all members are present, make more steps, and stop together. Then every one must be
within 1e-9 of the closed-form solution of all, and every folder whole. Exit 1 on anything else.

A ring of five, with a relay in front of every member's port. Of two neighbours the later dials the
earlier, so the relays of ben, cho and dan carry one link each, and that of ana two.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hobnob as hb
from hobnob.run.checkpoint import FILE, load
from tests.peers import federations
from tests.peers.processes import ROOT, Process, Town, error_of, problem

NAMES: list[str] = list(federations.NAMES[:5])
AROUND = {name: {NAMES[i - 1], NAMES[(i + 1) % 5]} for i, name in enumerate(NAMES)}
DIALLERS = {"ana": ["ben", "eva"], "ben": ["cho"], "cho": ["dan"], "dan": ["eva"]}
LIMIT = 60.0  # seconds after which something counts as a hang
# Steps so short that most faults meet a run that is still on its way.
SHORT = {"alpha": 0.03, "beta": 0.05, "gamma": 0.05, "theta": 0.5}
SETTLE = 4000  # such steps lead from any state to less than 1e-12
GRACE, DEADLINE = 0.5, 3.0
ACCURACY = 1e-9


class Outcome(NamedTuple):
    """Of one fault: seconds until neighbours noticed, and until it took part again."""

    kind: str
    noticed: list[float]
    returned: list[float]


class Chaos:
    """One run of five members, and the faults that it bears."""

    def __init__(
        self,
        folder: Path,
        rng: np.random.Generator,
        duals: str,
        settings: dict[str, float] = SHORT,
    ):
        self.folder, self.rng, self.duals = folder, rng, duals
        federation = federations.made(
            folder, hb.ring(5), duals=duals, grace=GRACE, deadline=DEADLINE, arrival=LIMIT
        )
        behind = federations.free_ports(5)
        self.listen = dict(zip(NAMES, [f"127.0.0.1:{port}" for port in behind], strict=True))
        ports = {
            m.name: [int(m.endpoint.split(":")[1]), port]
            for m, port in zip(federation.members, behind, strict=True)
        }
        self.town = Town(folder, NAMES, settings=settings)
        self.relay = Process("relay", ports)
        self.town.all.append(self.relay)
        self.relay.until(lambda: self.relay.last("open"), "the relay")
        self.solution = problem(5).solution
        self.outcomes: list[Outcome] = []
        self.kinds: dict[str, Callable[[], Outcome]] = {
            "kill -9, newest checkpoint": lambda: self.kill("newest"),
            "kill -9, old checkpoint": lambda: self.kill("old"),
            "kill -9, no checkpoint": lambda: self.kill("none"),
            "freeze": self.freeze,
            "reset": self.reset,
            "cut cable": self.cut_cable,
            "delay": self.delay,
            "slow member": self.slow,
            "partition": self.partition,
            "leave (Ctrl-C)": self.leave,
            "common stop": self.stop_and_resume,
        }

    def start(self, name: str) -> Process:
        return self.town.start(
            name,
            listen=self.listen[name],
            checkpoint=str(self.folder / "runs" / name),
            checkpoint_every=50,
            record_every=100,
        )

    def start_all(self) -> None:
        for name in NAMES:
            self.start(name)
        self.all_up()
        self.keep_old()

    def keep_old(self) -> None:
        """Copies of checkpoints, from which members will return later."""
        for name in NAMES:
            self.town[name].until(lambda name=name: self._saved(name), "a checkpoint", LIMIT)
            old = self.folder / "old" / name
            shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(self.folder / "runs" / name, old)

    def _saved(self, name: str) -> bool:
        return (self.folder / "runs" / name / FILE).exists()

    # --- waiting -------------------------------------------------------------------------------

    def all_up(self) -> None:
        for name in NAMES:
            self.town[name].until(
                lambda name=name: self.town[name].up == AROUND[name], "all links up", LIMIT
            )

    def goes_on(self, names: Sequence[str], steps: int = 20) -> None:
        for name in names:
            self.town[name].goes_on(steps, LIMIT)

    def news(self, member: str, of: str, word: str, since: float) -> float | None:
        """Seconds from `since` until a member wrote that another is away, or back."""
        for event in list(self.town[member].told):
            if event[0] == "log" and event[1] > since and f"{of} is {word}" in event[2]:
                return event[1] - since
        return None

    def all_news(self, pairs: Sequence[tuple[str, str]], word: str, since: float) -> list[float]:
        """`pairs`: (member, whom it speaks of)."""
        return [
            self.town[member].until(
                lambda member=member, of=of: self.news(member, of, word, since),
                f"{of} is {word}",
                LIMIT,
            )
            for member, of in pairs
        ]

    # --- faults --------------------------------------------------------------------------------

    def one(self) -> str:
        return NAMES[self.rng.integers(5)]

    def does(self, word: str, name: str, *more: float) -> float:
        began = time.time()
        self.relay.do(word, name, *more)
        self.relay.until(
            lambda: (event := self.relay.last("done")) and event[1] >= began, word, LIMIT
        )
        return began

    def kill(self, comes_back_with: str) -> Outcome:
        name = self.one()
        pairs = [(other, name) for other in AROUND[name]]
        killed = self.town[name].signal(signal.SIGKILL)
        noticed = self.all_news(pairs, "away", killed)
        self.goes_on([other for other in NAMES if other != name])
        runs = self.folder / "runs" / name
        load(runs)  # whole, whenever it was killed
        if comes_back_with != "newest":
            shutil.rmtree(runs)
        if comes_back_with == "old":
            shutil.copytree(self.folder / "old" / name, runs)
        return self._restart(name, pairs, f"kill -9, {comes_back_with} checkpoint", noticed)

    def _restart(
        self, name: str, pairs: list[tuple[str, str]], kind: str, noticed: list[float]
    ) -> Outcome:
        began = time.time()
        self.start(name)
        returned = self.all_news(pairs, "back", began)
        return Outcome(kind.replace(", none", ", no"), noticed, returned)

    def leave(self) -> Outcome:
        name = self.one()
        pairs = [(other, name) for other in AROUND[name]]
        asked = self.town[name].signal(signal.SIGINT)
        noticed = self.all_news(pairs, "away", asked)
        ended = self.town[name].end(LIMIT)
        assert ended["status"] == "interrupted", ended
        assert load(self.folder / "runs" / name).step == ended["steps"]
        return self._restart(name, pairs, "leave (Ctrl-C)", noticed)

    def freeze(self) -> Outcome:
        name = self.one()
        pairs = [(other, name) for other in AROUND[name]]
        frozen = self.town[name].signal(signal.SIGSTOP)
        noticed = self.all_news(pairs, "away", frozen)
        time.sleep(float(self.rng.uniform(0, 1.5)))
        awake = self.town[name].signal(signal.SIGCONT)
        return Outcome("freeze", noticed, self.all_news(pairs, "back", awake))

    def reset(self) -> Outcome:
        """If the connection is back within the grace, nobody is given up."""
        name = list(DIALLERS)[self.rng.integers(4)]
        began = self.does("reset", name)
        self.goes_on(NAMES)
        self.all_up()
        returned = [time.time() - began]
        pairs = [(name, other) for other in DIALLERS[name]]
        noticed = [self.news(*pair, "away", began) for a, b in pairs for pair in ((a, b), (b, a))]
        return Outcome("reset", [s for s in noticed if s is not None], returned)

    def _cut(self, relays: Sequence[str], kind: str) -> Outcome:
        """Silent lines, healed after a while."""
        pairs = [(relay, other) for relay in relays for other in DIALLERS[relay]]
        pairs += [(other, relay) for relay, other in pairs]
        began = [self.does("swallow", relay) for relay in relays]
        noticed = self.all_news(pairs, "away", began[-1])
        self.goes_on(NAMES)
        time.sleep(float(self.rng.uniform(0, 1.5)))
        healed = [self.does("heal", relay) for relay in relays]
        return Outcome(kind, noticed, self.all_news(pairs, "back", healed[-1]))

    def cut_cable(self) -> Outcome:
        return self._cut([list(DIALLERS)[self.rng.integers(4)]], "cut cable")

    def partition(self) -> Outcome:
        """{cho}, {dan} or {cho, dan} against the rest."""
        chosen = [["ben", "cho"], ["cho", "dan"], ["ben", "dan"]][self.rng.integers(3)]
        return self._cut(chosen, "partition")

    def _harmless(self, begin: Callable[[], object], end: Callable[[], object]) -> list[float]:
        marks = {n: len(self.town[n].logged) for n in NAMES}
        begin()
        time.sleep(1.0)
        self.goes_on(NAMES, 5)
        end()
        healed = time.time()
        self.goes_on(NAMES)
        away = [
            line for n in NAMES for line in self.town[n].logged[marks[n] :] if "is away" in line
        ]
        assert not away, away
        return [time.time() - healed]

    def delay(self) -> Outcome:
        name = list(DIALLERS)[self.rng.integers(4)]
        late = float(self.rng.uniform(0.005, 0.05))
        returned = self._harmless(
            lambda: self.does("delay", name, late), lambda: self.does("heal", name)
        )
        return Outcome("delay", [], returned)

    def slow(self) -> Outcome:
        name, pause = self.one(), float(self.rng.uniform(0.01, 0.1))
        returned = self._harmless(
            lambda: self.town[name].do("pause", pause), lambda: self.town[name].do("pause", 0.0)
        )
        return Outcome("slow member", [], returned)

    def stop_and_resume(self) -> Outcome:
        began = time.time()
        self.stop()
        noticed = [time.time() - began]
        again = time.time()
        for name in NAMES:
            self.start(name)
        self.all_up()
        return Outcome("common stop", noticed, [time.time() - again])

    # --- the end -------------------------------------------------------------------------------

    def stop(self) -> None:
        """One asks, all stop at the same step, and every folder is whole."""
        ends = self.town.stop_together(self.one(), LIMIT)
        steps = {end["steps"] for end in ends.values()}
        assert len(steps) == 1, {name: end["steps"] for name, end in ends.items()}
        for name, end in ends.items():
            folder = self.folder / "runs" / name
            saved = load(folder)
            assert saved.step == end["steps"], (name, saved.step, end["steps"])
            # kill -9 within a save leaves that process's unfinished copy beside the checkpoint.
            left = list(folder.glob(f".*.{self.town[name].pid}.part"))
            assert not left, (name, left)
            np.testing.assert_array_equal(saved.state["x"], np.array(end["x"]))
            recorded = np.array(end["recorded"])
            assert (np.diff(recorded) > 0).all(), (name, recorded)
        self.ends = ends

    def fault(self, kind: str) -> Outcome:
        outcome = self.kinds[kind]()
        self.all_up()
        self.outcomes.append(outcome)
        return outcome

    def settle(self, steps: int = SETTLE) -> float:
        """The largest error of any member, after all faults and some more steps."""
        self.all_up()
        self.goes_on(NAMES, steps)
        self.stop()
        return max(error_of(end, self.solution) for end in self.ends.values())

    def close(self) -> None:
        self.town.close()


class Campaign:
    """Runs of faults in turn, and what became of them."""

    def __init__(self, seed: int, faults: int, each: int, minutes: float):
        self.seed, self.faults, self.each = seed, faults, each
        self.until = time.monotonic() + 60 * minutes
        self.outcomes: list[tuple[Outcome, float]] = []  # with the error at the end of its run

    def go(self) -> None:
        done = number = 0
        while done < self.faults and time.monotonic() < self.until:
            count = min(self.each, self.faults - done)
            self._run(number, count)
            done, number = done + count, number + 1

    def _run(self, number: int, count: int) -> None:
        rng = np.random.default_rng([self.seed, number])
        duals = ("held", "dropped")[number % 2]
        folder = Path(tempfile.mkdtemp(prefix="hobnob-chaos-"))
        chaos = Chaos(folder, rng, duals)
        began, drawn = time.monotonic(), ["(start)"]
        try:
            chaos.start_all()
            for kind in draw(rng, list(chaos.kinds), count):
                drawn.append(kind)
                chaos.fault(kind)
            error = chaos.settle()
        except BaseException:
            print(f"run {number}, {duals} duals, after: {', '.join(drawn)}", flush=True)
            for name, member in chaos.town.members.items():
                print(f"--- {name}\n{member.summary()}", flush=True)
            raise
        finally:
            chaos.close()
        shutil.rmtree(folder)
        self.outcomes += [(outcome, error) for outcome in chaos.outcomes]
        steps = next(iter(chaos.ends.values()))["steps"]
        print(
            f"run {number}, {duals} duals: {count} faults, {steps} steps, "
            f"{time.monotonic() - began:.0f} s, error {error:.1e}",
            flush=True,
        )
        assert error < ACCURACY, f"run {number} ended at {error:.1e} of the solution"

    def table(self) -> str:
        lines = [
            f"{'fault':28}{'tried':>6}{'noticed: median':>17}{'max':>7}"
            f"{'back: median':>14}{'max':>7}{'error':>10}"
        ]
        for kind in dict.fromkeys(outcome.kind for outcome, _ in self.outcomes):
            of_kind = [(o, error) for o, error in self.outcomes if o.kind == kind]
            noticed = [s for o, _ in of_kind for s in o.noticed]
            returned = [s for o, _ in of_kind for s in o.returned]
            error = max(error for _, error in of_kind)
            lines.append(
                f"{kind:28}{len(of_kind):>6}{_median(noticed):>17}{_most(noticed):>7}"
                f"{_median(returned):>14}{_most(returned):>7}{error:>10.1e}"
            )
        return "\n".join([*lines, f"{'all':28}{len(self.outcomes):>6}"])


def draw(rng: np.random.Generator, kinds: list[str], count: int) -> list[str]:
    """Every kind about as often; a common stop, which costs most, once a run at most."""
    others = [kind for kind in kinds if kind != "common stop"]
    drawn = [others[i % len(others)] for i in rng.permutation(count)]
    if count >= len(kinds):
        drawn[rng.integers(count)] = "common stop"
    return drawn


def _median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f}" if seconds else "-"


def _most(seconds: list[float]) -> str:
    return f"{max(seconds):.2f}" if seconds else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--each", type=int, default=25, help="faults of one run")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after this long")
    given = parser.parse_args(arguments)
    # A member that returns finds its programs compiled, as on an owner's own machine.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    campaign = Campaign(given.seed, given.faults, given.each, given.minutes)
    try:
        campaign.go()
    except AssertionError as error:
        print(f"FAILED: {error}")
        print(campaign.table())
        return 1
    print(campaign.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One owner's process that solves the noiseless quadratic with the others, for tests to disturb.

    python -m tests.peers.member_run '{"folder": ..., "name": "ana", "steps": 4000, ...}'

Out: one line of JSON an event, [what, time, ...]:

    log LINE                 what the owner reads
    at STEP UP               now and then: the step, and the neighbours whose link is up
    row STEP X               at recorded steps
    company {...}            when asked
    end {...}                status, steps, x, y, company, steps of the history
    failed KIND WORDS

In: ["company"], ["stop"] (ask all to stop), ["pause", SECONDS] (that every step takes more),
["go"] (if it was told to `hold` before it begins).

Among the settings: `mute` [NAME, STEP]: from this step on, frames to one neighbour get lost; `die`
STEP; `keep` [STEP, FOLDER]: copy the checkpoint before this step.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from hobnob.core.owners import Company
from hobnob.runtimes.peers.frames import FrameKind, read_head
from hobnob.runtimes.peers.rounds import Rounds
from hobnob.runtimes.peers.zenoh_tls import ZenohTransport
from tests.peers.tell import tell


def plain(company: Company) -> dict[str, Any]:
    return {
        "neighbours": {n.name: {**n._asdict(), "refused": dict(n.refused)} for n in
                       company.neighbours},
        "absences": [absence._asdict() for absence in company.absences],
        "turned_away": dict(company.turned_away),
    }  # fmt: skip


class Capture:
    """Every frame that is handed to Zenoh or comes from it, as lines of JSON."""

    def __init__(self, path: str):
        self._path = Path(path)
        self._lines: list[str] = []
        self._lock = threading.Lock()
        send, open_ = ZenohTransport.send, ZenohTransport.open

        def sending(transport: ZenohTransport, to: str, frame: Any) -> bool:
            kept = bytes(frame)
            if sent := send(transport, to, frame):
                self._keep("to", to, kept)
            return sent

        def opening(transport: ZenohTransport, heard: Any, wired: Any) -> None:
            def hearing(name: str, frame: bytes) -> None:
                self._keep("from", name, frame)
                heard(name, frame)

            open_(transport, hearing, wired)

        ZenohTransport.send, ZenohTransport.open = sending, opening  # type: ignore[method-assign]

    def _keep(self, way: str, name: str, frame: bytes) -> None:
        with self._lock:
            self._lines.append(json.dumps([way, name, frame.hex()]))

    def close(self) -> None:
        with self._lock:
            self._path.write_text("\n".join(self._lines))


class Steered:
    """What a test can do to this process while it runs."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.pause = given.get("pause", 0.0)
        self.die_at: int | None = given.get("die")
        self.mute: list[Any] | None = given.get("mute")
        self.keep: list[Any] | None = given.get("keep")
        self.go = threading.Event()
        self.rounds: Rounds | None = None
        stays, enter, send = Rounds.stays, Rounds.enter, ZenohTransport.send

        def begin(step: int) -> None:
            if self.keep and step >= self.keep[0]:
                shutil.copytree(given["checkpoint"], self.keep[1])
                self.keep = None
            if self.die_at is not None and step >= self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.pause:
                time.sleep(self.pause)

        def watched_stays(rounds: Rounds, step: int) -> bool:
            begin(step)
            return stays(rounds, step)

        def watched_enter(rounds: Rounds, step: int) -> Any:
            self.rounds = rounds
            begin(step)
            return enter(rounds, step)

        def watched_send(transport: ZenohTransport, to: str, frame: Any) -> bool:
            if self.mute and to == self.mute[0]:
                head = read_head(bytes(frame), 2**40)
                if head.kind == FrameKind.ROUND and head.step >= self.mute[1]:
                    return True  # lost on its way
            return send(transport, to, frame)

        Rounds.stays, Rounds.enter = watched_stays, watched_enter  # type: ignore[method-assign]
        ZenohTransport.send = watched_send  # type: ignore[method-assign]

    def listen(self) -> None:
        for line in sys.stdin:
            word, *details = json.loads(line)
            if word == "company" and self.rounds:
                tell("company", plain(self.rounds.talk.company))
            elif word == "stop" and self.rounds:
                self.rounds.ask_to_stop()
            elif word == "pause":
                self.pause = details[0]
            elif word == "go":
                self.go.set()

    def watch(self) -> None:
        while True:
            if self.rounds is not None:
                talk = self.rounds.talk
                with talk.changed:
                    up = [talk.links[n].name for n in self.rounds.up]
                    step = talk.step
                tell("at", step, up)
            time.sleep(0.1)


def main(given: dict[str, Any]) -> None:
    capture = Capture(given["capture"]) if "capture" in given else None
    steered = Steered(given)
    for work in (steered.listen, steered.watch):
        threading.Thread(target=work, daemon=True).start()
    folder = Path(given["folder"])
    if given.get("hold"):
        tell("holds")
        steered.go.wait()
    peers = hb.Peers(
        folder / given.get("file", "federation.toml"),
        given["name"],
        folder / "keys",
        on_interrupt=given.get("on_interrupt", "leave"),
        listen=given.get("listen", ""),
        log=lambda line: tell("log", line),
    )
    network = peers.federation.network
    problem = hb.problems.get("quadratic")(agents=network.size, condition=4.0)
    kind = hb.algorithms.get(given.get("algorithm", "edge_sparkle"))
    algorithm: Any = kind(**given["settings"])
    checkpoint = given.get("checkpoint")
    saving = {} if checkpoint is None else {
        "checkpoint": checkpoint,
        "checkpoint_every": given.get("checkpoint_every", 100),
        "resume": Path(checkpoint).exists(),
    }  # fmt: skip

    def row(run: Any, state: Any) -> None:
        tell("row", int(run.latest["step"]), np.asarray(state.x).tolist())

    try:
        result = hb.solve(
            problem,
            network,
            algorithm,
            steps=given["steps"],
            record_every=given.get("record_every", 200),
            runtime=peers,
            callback=row,
            progress=False,
            **saving,
        )
    except hb.HobnobError as error:
        tell("failed", type(error).__name__, str(error))
        sys.exit(1)
    if capture:
        capture.close()
    assert result.company is not None
    told = {
        "status": result.status,
        "steps": result.steps,
        "x": result.agents["x"].tolist(),
        "y": result.agents["y"].tolist(),
        "bytes": result.ledger["bytes"].tolist(),
        "company": plain(result.company),
        "recorded": result.history["step"].tolist(),
    }
    tell("end", told)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

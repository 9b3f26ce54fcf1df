"""The five owners of examples/five_owners in a folder: their tables, their keys, their file."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

from hobnob.cli import federation_file
from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.federation import Federation
from tests.peers.federations import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "five_owners"
NAMES = ("ana", "ben", "cai", "dee", "eva")


def settle(folder: Path, *, steps: int = 40, agents: dict[str, int] | None = None) -> Federation:
    """mine.py, my.toml, NAME.csv, keys-NAME/ and federation.toml in a folder."""
    shutil.copy(EXAMPLE / "mine.py", folder)
    text = (EXAMPLE / "my.toml").read_text()
    text = text.replace("steps = 2000", f"steps = {steps}").replace("arrival = 600", "arrival = 60")
    text = text.replace("record_every = 50", "record_every = 10")
    text = text.replace("checkpoint_seconds = 5", "checkpoint_seconds = 1")
    assert f"steps = {steps}\n" in text
    (folder / "my.toml").write_text(text)
    runpy.run_path(str(EXAMPLE / "make_data.py"))["main"](folder)
    for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True):
        Identity.create(name, f"127.0.0.1:{port}", folder / f"keys-{name}")
    return make(folder, agents)


def certificates(folder: Path) -> list[Path]:
    return [folder / f"keys-{name}" / f"{name}.crt" for name in NAMES]


def make(folder: Path, agents: dict[str, int] | None = None) -> Federation:
    settings = federation_file.make(
        folder / "my.toml", certificates(folder), agents or {}, [folder / "ana.csv"]
    )
    return federation_file.write(folder / "federation.toml", settings)

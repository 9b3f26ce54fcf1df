"""Pool: measures the cells of a study in parallel, one worker process a core.

Compiled loops over small arrays use one core only, so every worker is a process. It writes its own
results. If it fails, only the work since the last checkpoint is lost.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from hobnob.ground.cores import cpus
from hobnob.ground.errors import HobnobError
from hobnob.ground.files import write_whole
from hobnob.run.interrupt import Interrupt
from hobnob.studies.cell import Bench, Cell, Found, Stopped

OnProgress = Callable[[Cell, float], None]  # a cell, and the fraction of it that is done

_POLL = 0.2  # seconds between two checks for Ctrl-C


class CellError(HobnobError):
    """A measurement failed."""


def measure_all(cells: Sequence[Cell], folder: Path, workers: int, on_progress: OnProgress) -> bool:
    """Measure the cells that have no file yet, in this process if `workers` is 0.

    Return False if Ctrl-C interrupted it.
    """
    for cell in cells:
        if _file(folder, cell).exists():
            on_progress(cell, 1.0)
    todo = [cell for cell in cells if not _file(folder, cell).exists()]
    if not todo:
        return True
    if workers == 0:
        return _measure_here(todo, folder, on_progress)
    # The longest first, so that no core is left with a long one at the end.
    todo.sort(key=lambda cell: cell.work)
    crew = _Crew(folder, min(workers, len(todo)))
    try:
        with Interrupt() as interrupt:
            return _distribute(todo, crew, on_progress, interrupt)
    finally:
        crew.dismiss()


def read_all(cells: Sequence[Cell], folder: Path) -> dict[str, Found]:
    """Results by the cell's name."""
    import numpy as np

    found = {}
    for cell in cells:
        with np.load(_file(folder, cell), allow_pickle=False) as arrays:
            found[cell.name] = dict(arrays)
    return found


def _measure_here(todo: Sequence[Cell], folder: Path, on_progress: OnProgress) -> bool:
    with Interrupt() as interrupt:
        for cell in todo:
            try:
                _measure(cell, folder, partial(on_progress, cell), lambda: interrupt.requested)
            except Stopped:
                return False
            on_progress(cell, 1.0)
    return True


class _Worker(NamedTuple):
    process: BaseProcess
    line: Connection


class _Crew:
    """The workers, and the cell that each is measuring."""

    def __init__(self, folder: Path, size: int):
        context = multiprocessing.get_context("spawn")
        every = cpus()
        self.busy: dict[Connection, Cell] = {}
        self.workers: list[_Worker] = []
        for i in range(size):
            here, there = context.Pipe()
            mine = every[i::size] or every
            process = context.Process(target=_work, args=(there, folder, mine), daemon=True)
            process.start()
            there.close()
            self.workers.append(_Worker(process, here))

    def assign(self, worker: _Worker, cell: Cell) -> None:
        self.busy[worker.line] = cell
        worker.line.send(cell)

    def idle(self) -> list[_Worker]:
        return [worker for worker in self.workers if worker.line not in self.busy]

    def interrupt(self) -> None:
        for worker in self.workers:
            if worker.line in self.busy and worker.process.pid:
                os.kill(worker.process.pid, signal.SIGINT)

    def dismiss(self) -> None:
        for worker in self.workers:
            with suppress(OSError):
                worker.line.send(None)
            if worker.line in self.busy:
                worker.process.terminate()
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()


def _distribute(
    todo: list[Cell], crew: _Crew, on_progress: OnProgress, interrupt: Interrupt
) -> bool:
    stopping = False
    while crew.busy or (todo and not stopping):
        if interrupt.requested and not stopping:
            stopping = True
            crew.interrupt()
        if not stopping:
            for worker in crew.idle():
                if todo:
                    crew.assign(worker, todo.pop())
        for line in wait(list(crew.busy), _POLL):
            assert isinstance(line, Connection)
            _receive(line, crew, on_progress)
    return not stopping


def _receive(line: Connection, crew: _Crew, on_progress: OnProgress) -> None:
    cell = crew.busy[line]
    try:
        word, value = line.recv()
    except EOFError:
        raise CellError(
            f"A worker ended without a message while measuring {cell.name}. Was there enough "
            f"memory? The same command resumes from here."
        ) from None
    if word == "failed":
        raise CellError(f"Measuring {cell.name} failed. {value}")
    if word == "part":
        on_progress(cell, value)
        return
    del crew.busy[line]
    if word == "done":
        on_progress(cell, 1.0)


def _work(line: Connection, folder: Path, cpus: list[int]) -> None:
    """The main loop of a worker: measure one cell after the other until none is left."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C in a terminal reaches the parent only, which forwards it
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _share_compilations(folder / "compiled")
    with suppress(EOFError):
        while cell := line.recv():
            line.send(_measured(cell, folder, line, stop))


def _measured(cell: Cell, folder: Path, line: Connection, stop: threading.Event) -> tuple[str, Any]:
    try:
        _measure(cell, folder, lambda part: line.send(("part", part)), stop.is_set)
    except Stopped:
        return "stopped", None
    except HobnobError as error:
        return "failed", str(error)
    except Exception:
        return "failed", "\n" + traceback.format_exc()
    return "done", None


def _measure(
    cell: Cell,
    folder: Path,
    on_progress: Callable[[float], None],
    interrupted: Callable[[], bool],
) -> None:
    """Measure a cell and write its results."""
    if interrupted():
        raise Stopped
    under_way = folder / "under-way" / cell.name
    found = cell.measure(Bench(under_way, on_progress, cell.solves, interrupted), **cell.options)
    _save(_file(folder, cell), found)
    shutil.rmtree(under_way, ignore_errors=True)


def _save(path: Path, found: Found) -> None:
    import numpy as np

    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **found)
    write_whole(path, archive.getvalue())


def _file(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.npz"


def _share_compilations(folder: Path) -> None:
    """Share compiled programs: simulations of one setting differ only in their data."""
    import jax

    # JAX writes entries in place. A worker that reads a partial entry just compiles again.
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _exit_with_parent() -> None:
    """End this worker if its parent was killed."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)

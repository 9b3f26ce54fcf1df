"""A relay that makes loopback feel like a wide-area network: latency and bandwidth of each link.

It stands in for `tc netem` where the kernel has none. Bytes are held back, never lost or changed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_CHUNK = 65536


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, rate: float
) -> None:
    """One direction: each chunk leaves when the line is free and arrives a latency later."""
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=2048)

    async def deliver() -> None:
        while True:
            due, chunk = await queue.get()
            if not chunk:
                break
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            writer.write(chunk)
            await writer.drain()
        writer.close()

    delivering, free = asyncio.create_task(deliver()), 0.0
    try:
        while chunk := await reader.read(_CHUNK):
            free = max(free, time.monotonic()) + len(chunk) / rate
            await queue.put((free + delay, chunk))
            if (ahead := free - time.monotonic()) > 0.005:
                await asyncio.sleep(ahead)
    except ConnectionError:
        pass
    await queue.put((0.0, b""))
    await asyncio.gather(delivering, return_exceptions=True)


async def _serve(ports: Mapping[int, int], delay: float, rate: float) -> None:
    async def connected(
        port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            _carry(reader, far_writer, delay, rate), _carry(far_reader, writer, delay, rate)
        )

    servers = [
        await asyncio.start_server(lambda r, w, to=to: connected(to, r, w), "127.0.0.1", port)
        for port, to in ports.items()
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _main(ports: Mapping[int, int], delay: float, rate: float) -> None:
    asyncio.run(_serve(ports, delay, rate))


@contextmanager
def relay(ports: Mapping[int, int], latency: float, megabits: float) -> Iterator[None]:
    """Inside it, port -> port is relayed on loopback; `latency` is one way, in seconds."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(
        target=_main, args=(dict(ports), latency, megabits * 1e6 / 8), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join(5)

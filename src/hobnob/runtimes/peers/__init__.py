"""Peers: agents of different owners, each in a process of its own, without a server or a leader."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from hobnob.core.algorithm import Scale
from hobnob.core.group import OneProcess
from hobnob.core.network import Network
from hobnob.core.setup import Carrier, Setup
from hobnob.ground.errors import NetworkError, SettingError

if TYPE_CHECKING:
    from hobnob.runtimes.peers.federation import Federation
    from hobnob.runtimes.peers.rounds import Rounds
    from hobnob.runtimes.peers.transport import Transport


class Peers:
    """Takes part in a run of several owners as one of them, or rehearses it alone.

    As a member, this process has that member's agents and data only. It talks to its neighbours
    over mutual TLS, goes on when one of them is away, and is let in again after it was away itself.
    Without a name all agents are in this process: the same numbers, with everything measured.

    Args:
        federation: the file that all members hold, or a `Federation`.
        name: which member this is; None to rehearse.
        keys: the folder with NAME.key and NAME.crt.
        on_interrupt: what Ctrl-C does: "leave" lets the others go on, "stop" asks them to stop.
        listen: HOST:PORT where this process listens, if not at its endpoint: behind a relay or in a
            container, 0.0.0.0:PORT.
        log: called with a line whenever somebody comes, goes or is refused; standard error if None.
        transport: how frames travel, for tests; Zenoh with TLS if None.

    Example:
        >>> import hobnob as hb
        >>> peers = hb.Peers("federation.toml", name="ana", keys="keys")
        >>> peers  # then hb.solve(..., runtime=peers), by every owner
        Peers('federation.toml', name='ana')
    """

    programs = None
    leads = True  # every owner measures, writes and prints its own

    def __init__(
        self,
        federation: str | Path | Federation,
        name: str | None = None,
        keys: str | Path = "keys",
        on_interrupt: Literal["leave", "stop"] = "leave",
        listen: str = "",
        log: Callable[[str], None] | None = None,
        transport: Transport | None = None,
    ):
        if on_interrupt not in ("leave", "stop"):
            raise SettingError(f'on_interrupt = {on_interrupt!r} must be "leave" or "stop".')
        self._given, self.name, self._keys = federation, name, Path(keys)
        self.on_interrupt, self._listen = on_interrupt, listen
        self._log, self._transport = log, transport
        self._rounds: Rounds | None = None

    def __repr__(self) -> str:
        given = self._given if isinstance(self._given, str | Path) else "federation"
        return f"Peers({str(given)!r}, name={self.name!r})"

    @property
    def among_owners(self) -> bool:
        """False in a rehearsal."""
        return self.name is not None

    @property
    def federation(self) -> Federation:
        from hobnob.runtimes.peers.federation import Federation

        if not isinstance(self._given, Federation):
            self._given = Federation.read(self._given)
        return self._given

    @contextmanager
    def watched(self, network: Network) -> Iterator[None]:
        """Inside it, this member can be reached by its neighbours."""
        if network.fingerprint() != self.federation.network.fingerprint():
            raise NetworkError(
                "The network is not that of the federation. Use Federation.read(...).network, or "
                "hb.Peers(...).federation.network."
            )
        if not self.among_owners:
            yield
            return
        self._rounds = self._meet()
        self._rounds.talk.open()
        try:
            yield
        finally:
            # After a run that ended well this was done already, and does nothing.
            self._rounds.end(finished=False)

    def agree(self, own: Scale) -> Scale:
        """The curvature of all members together, once all have arrived."""
        assert self._rounds is not None, "inside `watched`"
        return self._rounds.gather(own)

    def here(self) -> np.ndarray:
        """The agents of this process."""
        if self.name is None:
            return np.arange(self.federation.network.size)
        return self.federation.parts[self.federation.number(self.name)]

    def join(self, setup: Setup) -> tuple[OneProcess, Carrier]:
        from hobnob.runtimes.simulate.rows import Rows

        if not self.among_owners:
            return OneProcess(self.here()), Rows(setup)
        from hobnob.runtimes.apart.across import Across
        from hobnob.runtimes.apart.host_call import host_call
        from hobnob.runtimes.peers.among import AmongOwners
        from hobnob.runtimes.peers.peer_wire import PeerWire

        assert self._rounds is not None, "inside `watched`"
        wire = PeerWire(self._rounds)
        owners = AmongOwners(self._rounds, wire, setup)
        carrier = Across(setup, wire, self.federation.parts, host_call())
        return OneProcess(self.here(), owners), carrier

    def _meet(self) -> Rounds:
        from hobnob.runtimes.peers.conversation import Conversation
        from hobnob.runtimes.peers.rounds import Rounds
        from hobnob.runtimes.peers.zenoh_tls import ZenohTransport

        assert self.name is not None
        federation, me = self.federation, self.federation.number(self.name)
        identity = federation.identity(self.name, self._keys)
        log = self._log or _to_stderr
        around = federation.neighbours(me)
        known = [federation.members[n] for n in around]
        transport: Transport = self._transport or ZenohTransport(
            identity,
            {other.name: (other.endpoint, other.certificate) for other in known},
            # Of two neighbours the later in the file dials the earlier.
            [federation.members[n].name for n in around if n < me],
            log,
            authority=federation.authority,
            listen=self._listen,
        )
        return Rounds(Conversation(federation, me, identity, transport, log))


def combined(scales: Sequence[Scale]) -> Scale:
    """Bounds for the curvature of the mean of several losses, given that of each."""
    return Scale(
        max(scale.smoothness for scale in scales),
        float(np.mean([scale.strong_convexity for scale in scales])),
    )


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

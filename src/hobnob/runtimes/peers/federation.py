"""Federation: who takes part in a run of several owners, and by which rules.

It is one TOML file that all members hold. Its hash is the run's identity: members with another file
cannot talk to each other. What the file says of the problem and the algorithm is for the command
line; here are the members, the network between their agents, and the rules.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from hobnob.core.network import Network
from hobnob.ground.errors import ConfigError
from hobnob.runtimes.peers.certificates import check_name, fingerprint, name_of, split_endpoint

FORMAT = 1


@dataclass(frozen=True)
class Member:
    """One owner: where its process listens, its certificate (PEM), and how many agents it has."""

    name: str
    endpoint: str
    certificate: str = field(repr=False)
    agents: int = 1


@dataclass(frozen=True)
class Rules:
    """What all members do when somebody is late or away. Times are in seconds.

    duals      "held": those present go on towards the optimum of all; "dropped": towards their own
    deadline   a neighbour that shows no progress for so long counts as away
    grace      a connection that broke and is back after less than this counts as never broken
    arrival    how long to wait at the start for everybody to arrive
    seconds    stop all members together after this long; 0: no limit
    """

    duals: str = "held"
    deadline: float = 10.0
    grace: float = 0.5
    arrival: float = 600.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.duals not in ("held", "dropped"):
            raise ConfigError(f'[rules] duals = {self.duals!r} must be "held" or "dropped".')
        for name, least in (("deadline", 0.1), ("grace", 0.0), ("arrival", 1.0), ("seconds", 0.0)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not least <= value < float("inf"):
                raise ConfigError(
                    f"[rules] {name} = {value!r} must be seconds, at least {least:g}."
                )


@dataclass(frozen=True)
class Federation:
    """The members in order, the network of all their agents, and the rules.

    Agents are numbered through the members: the first member's come first. `settings` is all that
    the file says.
    """

    members: tuple[Member, ...]
    network: Network
    rules: Rules = Rules()
    authority: str = field(default="", repr=False)  # PEM of a CA that signed all certificates
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"Two members are called {name!r}: names must differ.")
        if sum(member.agents for member in self.members) != self.network.size:
            raise ConfigError(
                f"The members have {sum(m.agents for m in self.members)} agents, and the network "
                f"has {self.network.size}."
            )
        if self.network.levels:
            raise ConfigError("Members talk over one network: leave the levels' networks out.")

    @classmethod
    def read(cls, path: str | Path) -> Federation:
        try:
            settings = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}.") from error
        return cls.of_settings(settings, str(path))

    @classmethod
    def of_settings(cls, settings: dict[str, Any], where: str = "federation") -> Federation:
        if settings.get("format") != FORMAT:
            raise ConfigError(
                f"{where}: format = {settings.get('format')!r}, this version reads {FORMAT}. Make "
                f"the file with `hobnob federation new`."
            )
        for table, kind in (("member", list), ("network", dict)):
            if not isinstance(settings.get(table), kind):
                raise ConfigError(f"{where}: the table [{table}] is missing.")
        rules = settings.get("rules", {})
        known = [rule.name for rule in fields(Rules)]
        for key in rules:
            if key not in known:
                raise ConfigError(
                    f"{where}: [rules] has no {key!r}. There are: {', '.join(known)}."
                )
        return cls(
            tuple(_member(row, where) for row in settings["member"]),
            _network(settings["network"], where),
            Rules(**rules),
            settings.get("authority", ""),
            settings,
        )

    @cached_property
    def id(self) -> bytes:
        """The hash of all that the file says; how it is laid out does not matter."""
        return sha256(json.dumps(self.settings, sort_keys=True).encode()).digest()

    @cached_property
    def parts(self) -> list[np.ndarray]:
        """The agents of each member."""
        ends = np.cumsum([member.agents for member in self.members])
        return [np.arange(end - m.agents, end) for end, m in zip(ends, self.members, strict=True)]

    def number(self, name: str) -> int:
        for number, member in enumerate(self.members):
            if member.name == name:
                return number
        names = ", ".join(member.name for member in self.members)
        raise ConfigError(f"{name!r} is no member of this federation. There are: {names}.")

    def neighbours(self, number: int) -> list[int]:
        """The members that share a link with this one."""
        home = np.repeat(np.arange(len(self.members)), [m.agents for m in self.members])
        ends = home[self.network.ends]
        mine = ends[(ends == number).any(axis=1)]
        return sorted(set(mine.ravel().tolist()) - {number})


def _member(row: Any, where: str) -> Member:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: [[member]] must be a table.")
    try:
        member = Member(row["name"], row["endpoint"], row["certificate"], row.get("agents", 1))
    except KeyError as error:
        raise ConfigError(f"{where}: a [[member]] has no {error.args[0]!r}.") from error
    check_name(member.name)
    split_endpoint(member.endpoint)
    if name_of(member.certificate) != member.name:
        raise ConfigError(
            f"{where}: the certificate of member {member.name!r} is for "
            f"{name_of(member.certificate)!r}."
        )
    if row.get("fingerprint", "") != fingerprint(member.certificate):
        raise ConfigError(
            f"{where}: the fingerprint of member {member.name!r} is not that of its certificate. "
            f"Somebody changed one of the two: ask {member.name} for the right one."
        )
    whole = isinstance(member.agents, int) and not isinstance(member.agents, bool)
    if not whole or member.agents < 1:
        raise ConfigError(
            f"{where}: agents = {member.agents!r} of {member.name} must be 1 or more."
        )
    return member


def _network(table: dict[str, Any], where: str) -> Network:
    """From `agents` and `links`: [first, second, weight], both directions alike."""
    try:
        size = int(table["agents"])
        W = np.zeros((size, size))
        for first, second, weight in table["links"]:
            W[first, second] = W[second, first] = weight
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ConfigError(
            f"{where}: [network] needs agents, and links = [[first, second, weight], ...]."
        ) from error
    np.fill_diagonal(W, 1 - W.sum(axis=1))
    return Network(W)

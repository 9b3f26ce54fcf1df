"""Federation files: made from a configuration and certificates, and turned back into a run.

A file holds all that members agree on. Code that it names, "mine.py:problem", does not travel with
it: every owner puts a copy beside it and may read it first. The hash `losses` makes sure that all
have the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hobnob.cli import config
from hobnob.cli.agent_files import AgentFiles
from hobnob.cli.calls import Settings
from hobnob.cli.own_problem import is_own, make_problem, resolved, takes_files
from hobnob.core.algorithm import Algorithm
from hobnob.core.checks.program import batch_shapes
from hobnob.core.problem import Problem
from hobnob.ground.errors import ConfigError, PeerError
from hobnob.ground.files import write_whole
from hobnob.ground.versions import of_numbers
from hobnob.runtimes.peers import certificates
from hobnob.runtimes.peers.federation import FORMAT, Federation

OPTIONS = ("steps", "seed", "record_every", "checkpoint_every", "checkpoint_seconds")
NOT_ACROSS = {
    "tolerance": "|grad F| needs all data in one place. Give steps, or [rules] seconds",
    "metrics": "every owner measures what is its own, and what its neighbours tell",
    "beside": "a second method would be a second federation",
}
# Keys of [problem] that are not options of the problem.
OURS = ("columns", "losses", "shapes", "made_with")


class Described(NamedTuple):
    """What a federation file asks a member to run."""

    problem: Problem
    algorithm: Algorithm | None
    options: dict[str, Any]


def make(
    path: Path,
    certificate_files: Sequence[Path],
    agents: Mapping[str, int],
    data: Sequence[Path],
    authority_file: Path | None = None,
) -> Settings:
    """The settings of a federation, from a configuration and the members' certificates.

    `data` are files of the first agents; one owner's, or one with made-up records, is enough.
    """
    settings = config.read(path)
    for key, why in NOT_ACROSS.items():
        if key in settings:
            raise ConfigError(f"{path}: there is no {key} across owners: {why}.")
    authority = _read(authority_file) if authority_file else ""
    members = _members(certificate_files, agents, authority)
    total = sum(member["agents"] for member in members)
    steps, seed = settings.get("steps", 1000), settings.get("seed", 0)
    if not isinstance(seed, int):
        raise ConfigError(f"{path}: seed = {seed!r}: a run across owners has one seed.")
    network = config.network_of(settings["network"], total)
    if network.levels:
        raise ConfigError(f"{path}: members talk over one network, so it has no levels.")
    problem, table = _problem_table(settings["problem"], total, data, path)
    algorithm = config.algorithm_of(settings, "algorithm", problem)
    if algorithm is not None:
        _check_algorithm(algorithm, problem, network, steps)
    W = network.sparse.tocsr()
    made = {
        "format": FORMAT,
        "steps": steps,
        "seed": seed,
        "record_every": max(1, steps // 100),
        **{key: settings[key] for key in OPTIONS if key in settings},
        **({"authority": authority} if authority else {}),
        **{key: settings[key] for key in ("rules", "links") if key in settings},
        "problem": table,
        "network": {
            "agents": total,
            "links": [[i, j, float(W[i, j])] for i, j in network.ends.tolist()],
        },
        **{key: settings[key] for key in ("algorithm",) if key in settings},
        "member": members,
    }
    Federation.of_settings(made, str(path))
    return made


def write(path: Path, settings: Settings) -> Federation:
    """Write a federation file. Another federation that is there is kept."""
    import tomli_w

    made = Federation.of_settings(settings, str(path))
    if path.exists():
        there = Federation.read(path)
        if there.id != made.id:
            raise ConfigError(
                f"{path} exists and is another federation ({short_id(there)}, this one would be "
                f"{short_id(made)}). Write to another file, or move it away: members with "
                f"different files refuse each other."
            )
        return made
    write_whole(path, tomli_w.dumps(settings, multiline_strings=True).encode())
    return made


def described(
    federation: Federation, folder: Path, agents: Sequence[int], files: Sequence[Path]
) -> Described:
    """The run of a federation, with one file for each of the agents that are here.

    Checks that the losses, shapes and start are those that the members agreed on.
    """
    settings = federation.settings
    table = problem_settings(settings, folder)
    expected = settings["problem"].get("columns")
    if expected is None and files:
        raise ConfigError(f"[problem] {table['name']} reads no files: leave --data out.")
    if expected is not None and len(files) != len(agents):
        raise ConfigError(
            f"There are {len(agents)} agents here and {len(files)} data files: give --data one "
            f"file for each agent, in their order."
        )
    reads = AgentFiles(dict(zip(agents, files, strict=True)), expected) if expected else None
    problem = make_problem(table, federation.network.size, reads)
    _check_same_program(problem.hosting(list(agents)), settings["problem"])
    options = {key: settings[key] for key in OPTIONS if key in settings}
    links = config.links_of(settings)
    if links is not None:
        options["links"] = links
    return Described(problem, config.algorithm_of(settings, "algorithm", problem), options)


def problem_settings(settings: Settings, folder: Path) -> Settings:
    """The table [problem] without what a federation adds to it; its code is in the folder."""
    table = settings.get("problem")
    if not isinstance(table, dict) or "name" not in table:
        raise ConfigError("The federation file names no problem. Make it with federation new.")
    own = {key: value for key, value in table.items() if key not in OURS}
    return {**own, "name": resolved(own["name"], folder)}


def short_id(federation: Federation) -> str:
    return federation.id.hex()[:12]


def _problem_table(
    given: Settings, total: int, data: Sequence[Path], path: Path
) -> tuple[Problem, Settings]:
    """The problem with the shards that are here, and its table for the file."""
    table = dict(given)
    if table.get("agents", total) != total:
        raise ConfigError(
            f"{path}: [problem] agents = {table['agents']}, and the members have {total} together. "
            f"--agents NAME=NUMBER says who has several."
        )
    listed = table.get("data") if isinstance(table.get("data"), list) else None
    if listed is not None:
        del table["data"]
    paths = list(data) or [Path(file) for file in listed or ()]
    files = None
    if paths:
        files = AgentFiles(dict(enumerate(paths)))
    elif is_own(table["name"]) and takes_files(table):
        raise ConfigError(
            f"{Path(table['name']).name} reads a file for each agent: give --data FILE, that of "
            f"one owner or one with made-up records. Only its columns and the shapes of a batch go "
            f"into the federation file."
        )
    problem = make_problem(table, total, files)
    if problem.size != total:
        raise ConfigError(
            f"{path}: the problem has {problem.size} agents, and the members have {total} together."
        )
    if files is not None:
        problem = problem.hosting(files.agents)
    name = table["name"]
    made: Settings = {**table, "name": Path(name).name if is_own(name) else name}
    made.pop("agents", None)
    if files is not None:
        made["columns"] = files.columns
        if not is_own(name):
            made.setdefault("features", files.features)
    made["losses"] = problem.program_hash()
    made["made_with"] = of_numbers()
    made["shapes"] = {
        "dtype": str(problem.dtype),
        "x": problem.dim_x,
        "y": problem.dim_y,
        "personal": problem.personal,
        "outer": batch_shapes(problem.outer_data),
        "inner": batch_shapes(problem.inner_data),
    }
    return problem, made


def _check_same_program(hosted: Problem, table: Settings) -> None:
    if hosted.program_hash() == table.get("losses"):
        return
    shapes, name = table.get("shapes", {}), table["name"]
    own = {"x": hosted.dim_x, "y": hosted.dim_y, "dtype": str(hosted.dtype)}
    own |= {"outer": batch_shapes(hosted.outer_data), "inner": batch_shapes(hosted.inner_data)}
    for part, value in own.items():
        if shapes.get(part) != value:
            raise ConfigError(
                f"{name} makes another problem here than in the federation file: {part} is {value} "
                f"and must be {shapes.get(part)}. Look at your data file's columns and at your "
                f"copy of {name}."
            )
    then, now = table.get("made_with", {}), of_numbers()
    other = ", ".join(f"{n} {v} (here {now.get(n)})" for n, v in then.items() if now.get(n) != v)
    hint = f" The file was made with {other}, which may be the reason." if other else ""
    raise ConfigError(
        f"{name} has other losses, bounds or another start here than in the federation file: all "
        f"members must run the same. Compare your copy with the others' copies; numbers that it "
        f"computes from its own records must not enter a loss or x0.{hint}"
    )


def _check_algorithm(algorithm: Algorithm, problem: Problem, network: Any, steps: int) -> None:
    if algorithm.server:
        raise ConfigError(
            f"{type(algorithm).__name__} speaks through a server, and between owners there is "
            f"none. Leave [algorithm] out, or take a method for gossip."
        )
    algorithm.check_fits(problem, network)
    algorithm.bind(network.size, steps)


def _members(
    files: Sequence[Path], agents: Mapping[str, int], authority: str
) -> list[dict[str, Any]]:
    members = []
    for file in files:
        pem = _read(file)
        try:
            name, endpoint = certificates.name_of(pem), certificates.endpoint_of(pem)
        except PeerError as error:
            raise ConfigError(f"{file}: {error}") from error
        if certificates.expires(pem) <= datetime.now(UTC):
            raise ConfigError(
                f"{file} expired on {certificates.expires(pem):%Y-%m-%d}: ask {name} for a new one."
            )
        if authority:
            _check_issued(pem, authority, file)
        members.append(
            {
                "name": name,
                "endpoint": endpoint,
                "agents": agents.get(name, 1),
                "fingerprint": certificates.fingerprint(pem),
                "certificate": pem,
            }
        )
    if len(members) < 2:
        raise ConfigError("A federation has two members at least: --member FILE for each.")
    for name in agents:
        if name not in [member["name"] for member in members]:
            raise ConfigError(f"--agents {name}=...: no --member is called {name!r}.")
    return members


def _check_issued(pem: str, authority: str, file: Path) -> None:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        issuer = x509.load_pem_x509_certificate(authority.encode())
        x509.load_pem_x509_certificate(pem.encode()).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ConfigError(
            f"{file} was not issued by the authority. Its owner makes it with: hobnob owner new "
            f"NAME --endpoint HOST:PORT --out FOLDER --authority ca.crt --authority-key ca.key"
        ) from error


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error

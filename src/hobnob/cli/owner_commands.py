"""The commands of an owner: owner, federation, join and rehearse."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hobnob.cli.launch import DONE, exit_code
from hobnob.ground.errors import ConfigError


def add_parsers(commands: Any) -> None:
    _add_owner(commands)
    _add_federation(commands)

    join = commands.add_parser(
        "join",
        help="take part in a run of several owners, or come back to it",
        description="Take part in a run of several owners with your own agents and data. The same "
        "command comes back to it, from the checkpoint in the folder.",
    )
    join.add_argument("federation", type=Path, metavar="FEDERATION.toml")
    join.add_argument("--name", required=True, help="which member you are")
    join.add_argument(
        "--keys", type=Path, default=Path("keys"), metavar="DIR", help="with NAME.key and NAME.crt"
    )
    join.add_argument(
        "--out", type=Path, metavar="DIR", help="your folder of this run (default: runs/NAME)"
    )
    join.add_argument(
        "--ctrl-c",
        choices=("leave", "stop"),
        default="leave",
        help="what Ctrl-C does: leave, and the others go on; or ask all to stop",
    )
    join.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="where to listen, if not at your endpoint: in a container, 0.0.0.0:PORT",
    )
    join.set_defaults(act=_join)

    rehearse = commands.add_parser(
        "rehearse", help="the run of a federation in this process, with everybody's data"
    )
    rehearse.add_argument("federation", type=Path, metavar="FEDERATION.toml")
    rehearse.add_argument("--out", type=Path, metavar="DIR", help="the run's folder")
    rehearse.set_defaults(act=_rehearse)
    for command in (join, rehearse):
        _add_data(command, "one file for each agent, in their order")
        command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_owner(commands: Any) -> None:
    owner = commands.add_parser("owner", help="make or show the key and certificate of an owner")
    acts = owner.add_subparsers(title="commands", metavar="COMMAND", required=True)

    new = acts.add_parser("new", help="make a key, which stays here, and a certificate to hand on")
    new.add_argument("name", metavar="NAME")
    new.add_argument("--endpoint", required=True, metavar="HOST:PORT", help="where you listen")
    new.add_argument("--days", type=float, default=365, metavar="N", help="valid for so long")
    new.add_argument("--authority", type=Path, metavar="CA.crt", help="who signs the certificate")
    new.add_argument("--authority-key", type=Path, metavar="CA.key")
    new.set_defaults(act=_owner_new)

    authority = acts.add_parser("authority", help="make an authority, if members want one")
    authority.add_argument("name", metavar="NAME")
    authority.add_argument("--days", type=float, default=3650, metavar="N")
    authority.set_defaults(act=_owner_authority)
    for command in (new, authority):
        command.add_argument("--out", type=Path, default=Path("keys"), metavar="DIR")

    show = acts.add_parser("show", help="what a certificate says")
    show.add_argument("certificate", type=Path, metavar="NAME.crt")
    show.set_defaults(act=_owner_show)


def _add_federation(commands: Any) -> None:
    federation = commands.add_parser("federation", help="make or check the file that members hold")
    acts = federation.add_subparsers(title="commands", metavar="COMMAND", required=True)

    new = acts.add_parser("new", help="make it from a configuration and the members' certificates")
    new.add_argument("config", type=Path, metavar="CONFIG.toml")
    new.add_argument(
        "--member",
        type=Path,
        action="append",
        required=True,
        metavar="NAME.crt",
        help="a member's certificate; agents are numbered in the order of members",
    )
    new.add_argument(
        "--agents",
        type=_count_of,
        action="append",
        default=[],
        metavar="NAME=N",
        help="a member has so many agents (default: 1)",
    )
    _add_data(new, "files of the first agents: one owner's, or one with made-up records, is enough")
    new.add_argument("--authority", type=Path, metavar="CA.crt", help="who signed all certificates")
    new.add_argument("--out", type=Path, default=Path("federation.toml"), metavar="FILE")
    new.set_defaults(act=_federation_new)

    check = acts.add_parser(
        "check",
        help="graph, members, problem, and what leaves a member",
        description="Show what a federation file says, and what a member would send. With --data "
        "also make the problem, which runs its code, and compare it with the file.",
    )
    check.add_argument("federation", type=Path, metavar="FEDERATION.toml")
    _add_data(check, "a file of yours: is your problem that of the file?")
    check.set_defaults(act=_federation_check)


def _add_data(command: argparse.ArgumentParser, help: str) -> None:
    command.add_argument(
        "--data", type=Path, nargs="+", action="extend", default=[], metavar="FILE", help=help
    )


def _owner_new(options: argparse.Namespace) -> int:
    from hobnob.runtimes.peers.certificates import Identity

    authority = None
    if (options.authority is None) != (options.authority_key is None):
        raise ConfigError("An authority has a certificate and a key: give both of them.")
    if options.authority is not None:
        authority = _text(options.authority), options.authority_key
    made = Identity.create(options.name, options.endpoint, options.out, options.days, authority)
    print(f"{made.key_path}: your key. It stays here; nobody else may have it.")
    print(f"{made.certificate_path}: your certificate. Give it to whoever makes the federation.")
    _print_certificate(made.certificate)
    return DONE


def _owner_authority(options: argparse.Namespace) -> int:
    from hobnob.runtimes.peers.certificates import create_authority

    _, key = create_authority(options.name, options.out, options.days)
    print(f"{key}: signs members' certificates. It stays here.")
    print(f"{key.with_suffix('.crt')}: for `hobnob owner new` and `hobnob federation new`.")
    return DONE


def _owner_show(options: argparse.Namespace) -> int:
    _print_certificate(_text(options.certificate))
    return DONE


def _print_certificate(pem: str) -> None:
    from hobnob.ground.errors import PeerError
    from hobnob.runtimes.peers import certificates

    try:
        endpoint = certificates.endpoint_of(pem)
    except PeerError:
        endpoint = "none, so it is an authority's"
    print(f"name         {certificates.name_of(pem)}")
    print(f"endpoint     {endpoint}")
    print(f"valid until  {certificates.expires(pem):%Y-%m-%d %H:%M} UTC")
    print(f"fingerprint  {certificates.fingerprint(pem)}")


def _federation_new(options: argparse.Namespace) -> int:
    from hobnob.cli import federation_file

    settings = federation_file.make(
        options.config, options.member, dict(options.agents), options.data, options.authority
    )
    made = federation_file.write(options.out, settings)
    print(f"{options.out}: federation {federation_file.short_id(made)}.")
    print(f"Every member needs this file, and looks at it: hobnob federation check {options.out}")
    if ".py:" in settings["problem"]["name"]:
        file = settings["problem"]["name"].rpartition(":")[0]
        print(f"Every member needs a copy of {file} beside it, too, and may read it first.")
    return DONE


def _federation_check(options: argparse.Namespace) -> int:
    from hobnob.cli import federation_file, federation_view
    from hobnob.runtimes.peers.federation import Federation

    federation = Federation.read(options.federation)
    federation_view.show(federation, options.federation.name)
    if options.data:
        agents = range(len(options.data))
        federation_file.described(federation, options.federation.parent, agents, options.data)
        print(
            "Your data and your copy of the problem fit: losses and shapes are those of the file."
        )
    return DONE


def _join(options: argparse.Namespace) -> int:
    from hobnob.cli import owner_folder, run_folder

    asked = owner_folder.Joining(
        options.federation,
        options.name,
        options.keys,
        options.data,
        options.out or Path("runs") / options.name,
        options.ctrl_c,
        options.listen,
    )
    if owner_folder.finished(asked.folder):
        run_folder.show(asked.folder)
        return DONE
    result = owner_folder.join(asked, False if options.quiet else None)
    run_folder.show(asked.folder)
    return exit_code(result)


def _rehearse(options: argparse.Namespace) -> int:
    from hobnob.cli import owner_folder, run_folder

    progress = False if options.quiet else None
    folder, result = owner_folder.rehearse(options.federation, options.data, options.out, progress)
    run_folder.show(folder)
    return exit_code(result)


def _count_of(text: str) -> tuple[str, int]:
    """("ana", 2) of "ana=2"."""
    name, _, number = text.partition("=")
    if not name or not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=NUMBER, such as ana=2")
    return name, int(number)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error

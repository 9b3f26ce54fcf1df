"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hobnob.cli import owner_commands
from hobnob.cli.launch import BAD_INPUT, DONE, INTERRUPTED, NOT_CONVERGED, exit_code, run_on_ranks
from hobnob.ground.errors import HobnobError

if TYPE_CHECKING:
    from hobnob.run.store import Resume


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.act(options)
    except HobnobError as error:
        print(f"hobnob: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("hobnob: stopped.", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hobnob",
        description="Decentralised bilevel optimisation: agents that keep their data and talk "
        "only to their neighbours solve min F(x) = mean_k f_k(x, y*(x)) together.",
        epilog="Exit codes: 0 done, 1 not converged, 2 bad input or a run that diverged, 3 a rank "
        "was lost, 130 stopped with Ctrl-C.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help="eight agents on a ring tune a logistic regression, in under a minute"
    )
    demo.set_defaults(act=_demo)

    run = commands.add_parser("run", help="run what a configuration file describes")
    run.add_argument("config", type=Path, metavar="CONFIG.toml")
    run.set_defaults(act=_run)

    resume = commands.add_parser("resume", help="resume a run that was stopped")
    resume.add_argument("folder", type=Path, metavar="DIR")
    resume.set_defaults(act=_resume)

    for command in (demo, run):
        command.add_argument(
            "--out", type=Path, metavar="DIR", help="the run's folder (default: runs/0001, ...)"
        )
    reproduce = commands.add_parser(
        "reproduce",
        help="the paper's experiments (hyperopt, policy) and its claims, measured",
        description="Run the paper's experiments or measure its claims, and write a page. "
        "Ctrl-C stops it; the same command resumes it.",
    )
    reproduce.add_argument("study", choices=("hyperopt", "policy", "claims"))
    reproduce.add_argument("--data", metavar="FILE", help="a LIBSVM file, or scikit-learn's name")
    reproduce.add_argument("--sims", type=int, metavar="N", help="simulations (paper: 10)")
    reproduce.add_argument("--steps", type=int, metavar="T", help="iterations of each")
    reproduce.add_argument("--quick", action="store_true", help="a small version, in a minute")
    reproduce.add_argument(
        "--only", type=int, nargs="+", default=[], metavar="N", help="these claims alone"
    )
    reproduce.set_defaults(act=_reproduce)

    compare = commands.add_parser(
        "compare",
        help="several algorithms on one problem and network, and which one to take",
        description="Run several algorithms on what a configuration file describes, each with a "
        "small search for step sizes under the same budget, and write a page. A table [algorithm] "
        "with settings takes part as it is. Ctrl-C stops it; the same command resumes it.",
    )
    compare.add_argument("config", type=Path, metavar="CONFIG.toml")
    compare.add_argument(
        "--algorithms", type=_names, metavar="A,B,...", help="these (default: all that fit)"
    )
    compare.add_argument(
        "--without", type=_names, default=[], metavar="A,B,...", help="all that fit but these"
    )
    compare.add_argument(
        "--budget", type=float, metavar="N", help="samples per agent (default: 20,000 batches)"
    )
    compare.add_argument("--steps", type=int, metavar="T", help="iterations instead of samples")
    compare.add_argument("--seeds", type=int, metavar="N", help="measured seeds (default: 10)")
    compare.add_argument(
        "--target", type=float, metavar="VALUE", help="F to reach (default: the best, plus 1 %%)"
    )
    compare.add_argument("--quick", action="store_true", help="a small search, a small budget")
    compare.set_defaults(act=_compare)

    for command in (demo, run, resume, compare):
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            dest="changes",
            help="change a setting, such as steps=500 or algorithm.gamma=0.05",
        )
    for command in (demo, run, resume):
        command.add_argument(
            "--ranks",
            type=int,
            metavar="R",
            help="spread the agents over so many MPI processes, which mpirun starts",
        )
    for command in (demo, run, resume, reproduce, compare):
        command.add_argument("--quiet", action="store_true", help="no progress bar")
    for command, what in ((reproduce, "study"), (compare, "comparison")):
        command.add_argument("--workers", type=int, metavar="N", help="processes (default: cores)")
        command.add_argument("--out", type=Path, metavar="DIR", help=f"the {what}'s folder")

    owner_commands.add_parsers(commands)

    listing = commands.add_parser("list", help="the algorithms, problems, networks and metrics")
    listing.set_defaults(act=_list)

    show = commands.add_parser("show", help="a summary of a run")
    show.add_argument("folder", type=Path, metavar="DIR")
    show.set_defaults(act=_show)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from importlib.resources import as_file, files

    with as_file(files("hobnob.cli").joinpath("demo.toml")) as config:
        return _start(config, options, "hobnob demo")


def _run(options: argparse.Namespace) -> int:
    return _start(options.config, options, f"hobnob run {options.config}")


def _start(config: Path, options: argparse.Namespace, command: str) -> int:
    from hobnob.cli import config as configuration
    from hobnob.cli import run_folder

    settings = configuration.read(config, options.changes)
    folder = run_folder.create(options.out, settings)
    command += "".join(f" --set {change}" for change in options.changes)
    return _finish(folder, options, command)


def _resume(options: argparse.Namespace) -> int:
    from hobnob.cli import run_folder

    run_folder.change(options.folder, options.changes)
    return _finish(options.folder, options, "", resume="retune" if options.changes else True)


def _finish(folder: Path, options: argparse.Namespace, command: str, resume: Resume = False) -> int:
    from hobnob.cli import run_folder

    progress = False if options.quiet else None
    if options.ranks is not None:
        return run_on_ranks(options.ranks, folder, command, resume=resume, progress=progress)
    result = run_folder.execute(folder, command, resume=resume, progress=progress)
    run_folder.show(folder)
    return exit_code(result)


def _reproduce(options: argparse.Namespace) -> int:
    from hobnob.studies import reproduce as study
    from hobnob.studies import study_folder

    name, asked = options.study, study.options_of(options)
    folder = options.out or Path("runs") / study.folder_name(name, asked)
    report = study.reproduce(
        name,
        asked,
        folder,
        workers=options.workers,
        progress=False if options.quiet else None,
        command=f"hobnob reproduce {name}{study.flags(asked)}",
    )
    if report is None:
        print(f"Stopped. The same command resumes it; what is done is in {folder}.")
        return INTERRUPTED
    study_folder.show(report, folder)
    return DONE


def _compare(options: argparse.Namespace) -> int:
    from functools import partial

    from hobnob.cli import config
    from hobnob.studies import compare as comparing
    from hobnob.studies import study_folder

    settings = config.read(options.config, options.changes)
    asked = comparing.Asked(
        options.budget, options.steps, options.seeds, options.target, options.quick
    )
    flags = study_folder.flags(
        {
            "algorithms": ",".join(options.algorithms or ()),
            "without": ",".join(options.without),
            **vars(asked),
        }
    )
    flags += "".join(f" --set {change}" for change in options.changes)
    folder = options.out or Path("runs") / study_folder.slug(
        f"compare {options.config.stem}{flags}"
    )
    found = comparing.run_comparison(
        partial(config.scene, settings),
        options.algorithms,
        asked,
        folder,
        extra=config.given_algorithm(settings),
        without=options.without,
        workers=options.workers,
        progress=False if options.quiet else None,
        command=f"hobnob compare {options.config}{flags}",
    )
    if found is None:
        print(f"Stopped. The same command resumes it; what is done is in {folder}.")
        return INTERRUPTED
    study_folder.show(found.report, folder)
    return DONE if found.reached else NOT_CONVERGED


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _list(options: argparse.Namespace) -> int:
    from hobnob.cli import listing

    listing.print_all()
    return DONE


def _show(options: argparse.Namespace) -> int:
    from hobnob.cli import run_folder

    run_folder.show(options.folder)
    return DONE


def _version() -> str:
    from hobnob.ground.versions import hobnob_version

    return f"hobnob {hobnob_version()}"


if __name__ == "__main__":
    sys.exit(main())

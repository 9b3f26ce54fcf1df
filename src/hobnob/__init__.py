"""hobnob: decentralised bilevel optimisation.

    minimise over x   F(x) = mean_k f_k(x, y*(x)),   y*(x) = argmin over y of mean_k g_k(x, y)

for agents whose data stays apart and who talk only to their neighbours. A name is imported when
it is first used, so that `import hobnob` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hobnob import algorithms, metrics, networks, problems, testing
    from hobnob.algorithms.adaptive import Adaptive
    from hobnob.algorithms.adasdbo import AdaSDBO
    from hobnob.algorithms.alset import ALSET
    from hobnob.algorithms.amigo import AmIGO
    from hobnob.algorithms.bsa import BSA
    from hobnob.algorithms.dbsa import DBSA
    from hobnob.algorithms.dsbo import DSBO
    from hobnob.algorithms.dsgd import DSGD
    from hobnob.algorithms.dsoba import DSOBA
    from hobnob.algorithms.edge_sparkle import EdgeSPARKLE
    from hobnob.algorithms.f2sa import F2SA
    from hobnob.algorithms.fednest import FedNest
    from hobnob.algorithms.fedsbo import FedSBO
    from hobnob.algorithms.lopa import LoPA
    from hobnob.algorithms.madsbo import MADSBO
    from hobnob.algorithms.madsbo_gt import MADSBOGT
    from hobnob.algorithms.masoba import MASOBA
    from hobnob.algorithms.mdbo import MDBO
    from hobnob.algorithms.nasa import NASA
    from hobnob.algorithms.penalty import Penalty
    from hobnob.algorithms.saba import SABA
    from hobnob.algorithms.scgd import SCGD
    from hobnob.algorithms.simfbo import SimFBO
    from hobnob.algorithms.soba import SOBA
    from hobnob.algorithms.sparkle import SPARKLE
    from hobnob.algorithms.stocbio import StocBiO
    from hobnob.algorithms.storm import STORM
    from hobnob.algorithms.sustain import SUSTAIN
    from hobnob.algorithms.ttsa import TTSA
    from hobnob.analysis.choose import Choice, choose
    from hobnob.analysis.exact import curvature, exact, optimum
    from hobnob.core import fields, schedules
    from hobnob.core.agent import Agent
    from hobnob.core.algorithm import Algorithm, Scale
    from hobnob.core.data import Records, Simulator
    from hobnob.core.links import Cut, Drop, Silent
    from hobnob.core.network import Network
    from hobnob.core.problem import Problem
    from hobnob.ground.errors import (
        CheckpointError,
        ConfigError,
        DivergenceError,
        HobnobError,
        NetworkError,
        ProblemError,
        SettingError,
    )
    from hobnob.metrics.view import View
    from hobnob.networks.chance import erdos_renyi, random_regular
    from hobnob.networks.exponential import exponential
    from hobnob.networks.grids import torus
    from hobnob.networks.hubs import complete, star
    from hobnob.networks.lines import path, ring
    from hobnob.problems.compositional import Compositional
    from hobnob.run.result import Result
    from hobnob.run.solve import solve
    from hobnob.runtimes.mpi import Mpi
    from hobnob.runtimes.peers import Peers
    from hobnob.runtimes.simulate import Simulate
    from hobnob.studies.compare import Comparison, compare

_MODULES = {
    "algorithms": "algorithms",
    "fields": "core.fields",
    "metrics": "metrics",
    "networks": "networks",
    "problems": "problems",
    "schedules": "core.schedules",
    "testing": "testing",
}
_HOMES = {
    "algorithms.adaptive": ("Adaptive",),
    "algorithms.adasdbo": ("AdaSDBO",),
    "algorithms.alset": ("ALSET",),
    "algorithms.amigo": ("AmIGO",),
    "algorithms.bsa": ("BSA",),
    "algorithms.dbsa": ("DBSA",),
    "algorithms.dsbo": ("DSBO",),
    "algorithms.dsgd": ("DSGD",),
    "algorithms.dsoba": ("DSOBA",),
    "algorithms.edge_sparkle": ("EdgeSPARKLE",),
    "algorithms.f2sa": ("F2SA",),
    "algorithms.fednest": ("FedNest",),
    "algorithms.fedsbo": ("FedSBO",),
    "algorithms.lopa": ("LoPA",),
    "algorithms.madsbo": ("MADSBO",),
    "algorithms.madsbo_gt": ("MADSBOGT",),
    "algorithms.masoba": ("MASOBA",),
    "algorithms.mdbo": ("MDBO",),
    "algorithms.nasa": ("NASA",),
    "algorithms.penalty": ("Penalty",),
    "algorithms.saba": ("SABA",),
    "algorithms.scgd": ("SCGD",),
    "algorithms.simfbo": ("SimFBO",),
    "algorithms.soba": ("SOBA",),
    "algorithms.sparkle": ("SPARKLE",),
    "algorithms.stocbio": ("StocBiO",),
    "algorithms.storm": ("STORM",),
    "algorithms.sustain": ("SUSTAIN",),
    "algorithms.ttsa": ("TTSA",),
    "analysis.choose": ("Choice", "choose"),
    "analysis.exact": ("curvature", "exact", "optimum"),
    "core.agent": ("Agent",),
    "core.algorithm": ("Algorithm", "Scale"),
    "problems.compositional": ("Compositional",),
    "core.data": ("Records", "Simulator"),
    "core.links": ("Cut", "Drop", "Silent"),
    "core.network": ("Network",),
    "core.problem": ("Problem",),
    "ground.errors": (
        "CheckpointError",
        "ConfigError",
        "DivergenceError",
        "HobnobError",
        "NetworkError",
        "ProblemError",
        "SettingError",
    ),
    "metrics.view": ("View",),
    "networks.chance": ("erdos_renyi", "random_regular"),
    "networks.exponential": ("exponential",),
    "networks.grids": ("torus",),
    "networks.hubs": ("complete", "star"),
    "networks.lines": ("path", "ring"),
    "run.result": ("Result",),
    "run.solve": ("solve",),
    "runtimes.mpi": ("Mpi",),
    "runtimes.peers": ("Peers",),
    "runtimes.simulate": ("Simulate",),
    "studies.compare": ("Comparison", "compare"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ALSET",
    "BSA",
    "DBSA",
    "DSBO",
    "DSGD",
    "DSOBA",
    "F2SA",
    "MADSBO",
    "MADSBOGT",
    "MASOBA",
    "MDBO",
    "NASA",
    "SABA",
    "SCGD",
    "SOBA",
    "SPARKLE",
    "STORM",
    "SUSTAIN",
    "TTSA",
    "AdaSDBO",
    "Adaptive",
    "Agent",
    "Algorithm",
    "AmIGO",
    "CheckpointError",
    "Choice",
    "Comparison",
    "Compositional",
    "ConfigError",
    "Cut",
    "DivergenceError",
    "Drop",
    "EdgeSPARKLE",
    "FedNest",
    "FedSBO",
    "HobnobError",
    "LoPA",
    "Mpi",
    "Network",
    "NetworkError",
    "Peers",
    "Penalty",
    "Problem",
    "ProblemError",
    "Records",
    "Result",
    "Scale",
    "SettingError",
    "Silent",
    "SimFBO",
    "Simulate",
    "Simulator",
    "StocBiO",
    "View",
    "algorithms",
    "choose",
    "compare",
    "complete",
    "curvature",
    "erdos_renyi",
    "exact",
    "exponential",
    "fields",
    "metrics",
    "networks",
    "optimum",
    "path",
    "problems",
    "random_regular",
    "ring",
    "schedules",
    "solve",
    "star",
    "testing",
    "torus",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(f"hobnob.{_MODULES[name]}")
    elif name in _HOME_OF:
        value = getattr(import_module(f"hobnob.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'hobnob' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

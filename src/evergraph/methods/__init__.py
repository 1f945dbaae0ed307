"""Continual learners: one file per method, one contract, one dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evergraph.errors import unknown_name
from evergraph.methods.al_gnn import ALGNN
from evergraph.methods.analytic import Analytic
from evergraph.methods.base import NEEDS, Descent, Method, MethodConfig
from evergraph.methods.bounds import Finetune, Frozen, Joint
from evergraph.methods.cat import CaT
from evergraph.methods.context import TaskContext, TrainConfig
from evergraph.methods.continual_gnn import ContinualGNN
from evergraph.methods.delome import DeLoMe
from evergraph.methods.dslr import DSLR
from evergraph.methods.dslr_plus import DSLRPlus
from evergraph.methods.ewc import EWC
from evergraph.methods.gem import GEM
from evergraph.methods.homophily_probe import HomophilyProbe
from evergraph.methods.lwf import LwF
from evergraph.methods.mas import MAS
from evergraph.methods.one_per_task import OnePerTask
from evergraph.methods.pdgnn import PDGNN
from evergraph.methods.puma import PUMA
from evergraph.methods.rclg import RCLG
from evergraph.methods.replay import ERGNN, Replay
from evergraph.methods.ssm import SSM
from evergraph.methods.twp import TWP
from evergraph.validation import parse

METHODS: dict[str, type[Method[Any]]] = {
    "finetune": Finetune,
    "frozen": Frozen,
    "joint": Joint,
    "replay": Replay,
    "er-gnn": ERGNN,
    "gem": GEM,
    "dslr": DSLR,
    "dslr+": DSLRPlus,
    "lwf": LwF,
    "rclg": RCLG,
    "ewc": EWC,
    "mas": MAS,
    "twp": TWP,
    "continual-gnn": ContinualGNN,
    "analytic": Analytic,
    "pdgnn-tem": PDGNN,
    "ssm": SSM,
    "cat": CaT,
    "puma": PUMA,
    "delome": DeLoMe,
    "al-gnn": ALGNN,
}
#: Variants that answer one question of an experiment; not for ``--method all``.
PROBES: dict[str, type[Method[Any]]] = {
    "homophily-probe": HomophilyProbe,
    "one-per-task": OnePerTask,
}


def method_class(name: str) -> type[Method[Any]]:
    """Looks a method up, suggesting the nearest name when there is none."""
    known = METHODS | PROBES
    if name not in known:
        raise unknown_name("method", name, METHODS)
    return known[name]


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method[Any]:
    """Makes a method from plain settings; unknown keys are errors."""
    cls = method_class(name)
    return cls(parse(cls.Config, settings or {}))


__all__ = [
    "METHODS",
    "NEEDS",
    "PROBES",
    "Descent",
    "Method",
    "MethodConfig",
    "TaskContext",
    "TrainConfig",
    "make_method",
    "method_class",
]

"""EstimatorConfig: everything that determines what an estimator makes of its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from evergraph.config import complete, read_presets, settable_keys
from evergraph.errors import InputError, unknown_name
from evergraph.methods import METHODS, MethodConfig, TrainConfig, method_class
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol
from evergraph.stream.features import Scaling
from evergraph.validation import Config, parse

SCHEMA_VERSION = 1
#: What ``auto`` is, and the network that it is where that is surely better on left-out nodes.
USUAL, NETWORK = "analytic", "dslr"
#: Settings that a method of a graph that changes begins with, where it has them.
DEFAULTS = {"statistics": "auto", "constant": "auto", "direction": "auto"}


class Parameters(Config):
    """What a user gives to the constructor, kept to be given back.

    Attributes:
        method: Registered name of the method, or ``auto``.
        buffer_size: |B|, the most nodes kept; None leaves it to the method.
        seed: Source of all randomness.
        validation_fraction: Share of each class's labelled nodes that only judges; ``auto`` is
            a tenth, and more where a network learns from few.
        feature_scaling: ``auto`` scales features robustly unless they are binary or normalised,
            ``robust`` always, ``none`` never.
        settings: Further settings of the method, the training and the network.
        preset: A dataset whose published settings apply where ``settings`` are silent.
    """

    method: str = "auto"
    buffer_size: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    validation_fraction: Literal["auto"] | Annotated[float, Field(ge=0, le=0.5)] = "auto"
    feature_scaling: Scaling = "auto"
    settings: dict[str, Any] = Field(default_factory=dict)
    preset: str | None = None


class EstimatorConfig(Config):
    """The complete settings, as written into a state.

    Attributes:
        schema_version: Version of the state's format.
        parameters: What the user gave.
        settings: The method's own settings, complete.
        training: Gradient descent.
        model: The network.
        chosen: What ``auto`` chose; None until then, and where a method was named.
    """

    schema_version: int = Field(default=SCHEMA_VERSION, ge=SCHEMA_VERSION, le=SCHEMA_VERSION)
    parameters: Parameters
    settings: dict[str, Any]
    training: TrainConfig
    model: ModelConfig
    chosen: str | None = None

    @property
    def method(self) -> str:
        """Registered name of the method that learns."""
        named = self.parameters.method
        return self.chosen or (USUAL if named == "auto" else named)

    @property
    def direction(self) -> bool:
        """Whether edges keep their directions, if they come with any: somebody may use them."""
        attends = self.model.backbone == "gat" and self.model.heads > 1
        given = self.parameters.settings.get("direction", attends)
        return self.settings.get("direction", given) is not False

    def unused(self, method: MethodConfig) -> frozenset[str]:
        """Names the settings that have no effect beside the others."""
        return method.unused() | self.training.unused


def make_config(given: Mapping[str, Any], chosen: str | None = None) -> EstimatorConfig:
    """Completes what a user gave with the preset's and the method's defaults.

    ``chosen`` is what ``auto`` chose; before that its settings are those of :data:`USUAL`.
    """
    parameters = parse(Parameters, given)
    options = dict(parameters.settings)
    named = USUAL if parameters.method == "auto" else parameters.method
    if named not in METHODS:
        raise unknown_name("method", named, {*METHODS, "auto"})
    # Directions may be set for every method: the graph is kept accordingly.
    known = (settable_keys(named) | {"direction"}) - set(Protocol.model_fields)
    if parameters.buffer_size is not None:
        if "buffer_size" not in known:
            raise InputError(
                f"Expected no 'buffer_size' for method '{parameters.method}', which keeps no nodes "
                f"(got {parameters.buffer_size}); leave it out."
            )
        options["buffer_size"] = parameters.buffer_size
    for key in options:
        if key not in known:
            raise unknown_name(f"setting of method '{parameters.method}'", key, known)
    direction = options.get("direction", "auto")
    if direction not in ("auto", True, False):
        raise InputError(
            f"Expected 'direction' as auto, true or false (got {direction!r}); set one."
        )
    presets = read_presets().keys() - {"all"}
    if parameters.preset is not None and parameters.preset not in presets:
        raise unknown_name("preset", parameters.preset, presets)
    found = complete(parameters.preset, chosen or named, {"estimator": DEFAULTS, "user": options})
    return EstimatorConfig(
        parameters=parameters,
        settings=found.settings.model_dump(mode="json"),
        training=found.training,
        model=found.model,
        chosen=chosen,
    )


def read_config(content: Mapping[str, Any]) -> EstimatorConfig:
    """Checks a state's settings; wrong ones raise :class:`InputError`.

    States of before features were scaled go on without.
    """
    given = {"feature_scaling": "none", **content["parameters"]}
    config = parse(EstimatorConfig, {**content, "parameters": given})
    kind = method_class(config.method).Config
    settings = parse(kind, {**kind.former, **config.settings})
    kept = settings.model_dump(mode="json", exclude_unset=True)  # under today's names
    return config.model_copy(update={"settings": kept})

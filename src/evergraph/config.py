"""RunConfig: everything that determines a run, and how the command's words become one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from evergraph.errors import InputError, unknown_name
from evergraph.files import dump_yaml, load_yaml
from evergraph.methods import TrainConfig, method_class
from evergraph.nn import ModelConfig
from evergraph.presets import Presets, preset_for
from evergraph.protocols import usual_protocol
from evergraph.stream import Protocol
from evergraph.train import check_backbone
from evergraph.validation import Config, parse

SCHEMA_VERSION = 1
SECTIONS: dict[str, type[BaseModel]] = {
    "training": TrainConfig,
    "model": ModelConfig,
    "protocol": Protocol,
}


class RunConfig(Config):
    """A complete, re-runnable description of one run.

    Attributes:
        schema_version: Version of this format.
        dataset: Name or path of the graph.
        dataset_options: Settings of a generated graph.
        method: Registered name of the method.
        label: Name of this variant in tables.
        overrides: What the user set, for display; already part of the sections.
        seed: Source of all randomness.
        settings: The method's own settings, complete.
        training: Gradient descent.
        model: The network.
        protocol: Classes, order and split.
    """

    schema_version: int = Field(default=SCHEMA_VERSION, ge=SCHEMA_VERSION, le=SCHEMA_VERSION)
    dataset: str
    dataset_options: dict[str, Any] = Field(default_factory=dict)
    method: str
    label: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0)
    settings: dict[str, Any]
    training: TrainConfig
    model: ModelConfig
    protocol: Protocol

    @property
    def dataset_name(self) -> str:
        """Names the graph in tables, generated ones with their options."""
        options = ",".join(f"{key}={value}" for key, value in sorted(self.dataset_options.items()))
        return f"{self.dataset}:{options}" if options else self.dataset

    @property
    def hash(self) -> str:
        """Identifies the run: equal hashes give equal results."""
        return self._digest({"label", "overrides"})

    @property
    def variant_hash(self) -> str:
        """Identifies what runs of different seeds share."""
        return self._digest({"label", "overrides", "seed"})

    def _digest(self, exclude: set[str]) -> str:
        settings = method_class(self.method).Config.hashed_as(self.settings)
        content = self.model_copy(update={"settings": settings}).model_dump_json(exclude=exclude)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def to_yaml(self) -> str:
        """Writes the configuration as YAML that :meth:`from_yaml` reads back."""
        return dump_yaml(self.model_dump(mode="json"))

    @classmethod
    def from_yaml(cls, text: str, source: str) -> RunConfig:
        """Reads what :meth:`to_yaml` wrote."""
        values = load_mapping(text, source)
        for name, section in SECTIONS.items():  # so that a wrong key is named by its section
            if isinstance(values.get(name), dict):
                values[name] = parse(section, values[name], prefix=f"{name}.")
        config = parse(cls, values)
        settings = parse(method_class(config.method).Config, config.settings)
        kept = settings.model_dump(mode="json", exclude_unset=True)  # under today's names
        return config.model_copy(update={"settings": kept})


class Variant(Config):
    """A dataset or method as written on the command line: ``NAME[:key=value,...][@label]``."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str

    @classmethod
    def parse_dataset(cls, text: str) -> Variant:
        """Reads ``synthetic:nodes=5000``; what has no options is a name or a path as it stands."""
        name, _, tail = text.partition(":")
        if "=" not in tail or Path(text).exists():
            return cls(name=text, label=text)
        return cls(name=name, options=parse_settings(tail.split(",")), label=text)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Reads ``replay:selector=mf,beta=0.2@replay-mf``."""
        body, _, label = text.partition("@")
        name, _, tail = body.partition(":")
        if tail and "=" not in tail:
            raise InputError(
                f"Expected NAME:key=value,... (got '{text}'); write for example replay:selector=mf."
            )
        options = parse_settings(tail.split(",")) if tail else {}
        return cls(name=name, options=options, label=label or body)


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Reads ``key=value`` pairs; values are YAML scalars."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"Expected key=value (got '{pair}'); write for example beta=0.1.")
        try:
            settings[key.strip()] = load_yaml(value, key)
        except InputError:
            raise InputError(
                f"Expected '{key}' to be a plain value (got '{value}'); write a number or a word."
            ) from None
    return settings


def resolve(
    dataset: Variant,
    method: Variant,
    seed: int,
    shared: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
) -> RunConfig:
    """Puts defaults, the dataset's preset and the user's settings together, in that order.

    Args:
        dataset: The graph, with options if it is generated.
        method: The method with its own settings.
        seed: The run's seed.
        shared: Settings for every method that has them; see :func:`check_shared`.
        presets: Ours, or the paper's to the letter.
    """
    cls = method_class(method.name)
    known = settable_keys(method.name)
    for key in method.options:
        if key not in known:
            raise unknown_name(f"key of method '{method.name}'", key, known)
    applying = {key: value for key, value in (shared or {}).items() if key in known}
    overrides = {**applying, **method.options}
    preset = preset_for(dataset.name, method.name, presets)
    values = {**{key: value for key, value in preset.items() if key in known}, **overrides}
    protocol = usual_protocol(dataset.name, method.name).model_dump()
    sections = {
        name: parse(section, {**(protocol if name == "protocol" else {}), **_part(section, values)})
        for name, section in SECTIONS.items()
    }
    settings = parse(cls.Config, _part(cls.Config, values))
    model = sections["model"]
    assert isinstance(model, ModelConfig)
    check_backbone(cls, model)
    return parse(
        RunConfig,
        {
            "dataset": dataset.name,
            "dataset_options": dataset.options,
            "method": method.name,
            "label": method.label,
            "overrides": overrides,
            "seed": seed,
            "settings": settings.model_dump(mode="json"),
            **sections,
        },
    )


def check_shared(shared: Mapping[str, Any], methods: Sequence[str]) -> None:
    """Refuses a shared key that none of the methods has."""
    known = set().union(*(settable_keys(name) for name in methods))
    for key in shared:
        if key not in known:
            raise unknown_name("key", key, known)


def settable_keys(method: str) -> set[str]:
    """Lists every key that ``--set`` takes for a method."""
    sections = [method_class(method).Config, *SECTIONS.values()]
    return {key for section in sections for key in section.model_fields} - {"name"}


def load_mapping(text: str, source: str) -> dict[str, Any]:
    """Reads a YAML mapping, turning every failure into one sentence."""
    content = load_yaml(text, source)
    if not isinstance(content, dict):
        raise InputError(
            f"Expected '{source}' to hold keys and values (got {type(content).__name__}); fix it."
        )
    return {str(key): value for key, value in content.items()}


def _part(section: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in section.model_fields}

"""Settings: class defaults, ``presets.yaml`` and the user's words, resolved in one place.

:func:`complete` puts them together and says where every value comes from; runs and the estimator
go through it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from evergraph.errors import InputError, unknown_name
from evergraph.methods import METHODS, Method, MethodConfig, TrainConfig, method_class
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, protocol_for
from evergraph.train import check_backbone
from evergraph.validation import Config, dump_yaml, load_yaml, parse

SCHEMA_VERSION = 1
SECTIONS: dict[str, type[BaseModel]] = {
    "training": TrainConfig,
    "model": ModelConfig,
    "protocol": Protocol,
}
#: ``tuned`` are our settings, ``printed`` the paper's to the letter, ``authors`` its public code's.
Presets = Literal["tuned", "printed", "authors"]
#: Where a preset's value comes from; of several the last counts.
ORIGINS: dict[Presets, tuple[str, ...]] = {
    "tuned": ("printed", "tuned", "ours"),
    "printed": ("printed",),
    "authors": ("printed", "authors"),
}
#: What is held out of each class for a method that needs validation nodes, unless it is set.
NEEDED_VALIDATION = 0.1


class RunConfig(Config):
    """A complete, re-runnable description of one run."""

    #: Version of this format.
    schema_version: int = Field(default=SCHEMA_VERSION, ge=SCHEMA_VERSION, le=SCHEMA_VERSION)
    dataset: str  # name or path of the graph
    dataset_options: dict[str, Any] = Field(default_factory=dict)  # settings of a generated graph
    method: str  # registered name of the method
    label: str  # name of this variant in tables
    #: What the user set, for display; already part of the sections.
    overrides: dict[str, Any] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0)  # source of all randomness
    settings: dict[str, Any]  # the method's own settings, complete
    training: TrainConfig  # gradient descent
    model: ModelConfig  # the network
    protocol: Protocol  # classes, order and split

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
        hidden: dict[str, Any] = dict.fromkeys(exclude, True)
        hidden |= {name: getattr(self, name).unhashed for name in ("protocol", "training")}
        content = self.model_copy(update={"settings": settings}).model_dump_json(exclude=hidden)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def make_method(self) -> Method[Any]:
        """Makes the method that is to learn, refusing a backbone that it cannot work with."""
        cls = method_class(self.method)
        check_backbone(cls, self.model)
        return cls(parse(cls.Config, self.settings))

    def unused(self) -> frozenset[str]:
        """Names the settings that have no effect beside the others."""
        method: MethodConfig = self.make_method().config
        return method.unused() | self.protocol.unused | self.training.unused

    def to_yaml(self) -> str:
        """Writes the configuration as YAML whose values :meth:`from_values` takes."""
        return dump_yaml(self.model_dump(mode="json"))

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> RunConfig:
        """Takes the values that :meth:`to_yaml` wrote."""
        sections = {  # so that a wrong key is named by its section
            name: parse(section, values[name], prefix=f"{name}.")
            for name, section in SECTIONS.items()
            if isinstance(values.get(name), dict)
        }
        config = parse(cls, {**values, **sections})
        kind = method_class(config.method).Config
        settings = parse(kind, {**kind.former, **config.settings})
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
        if "=" not in tail or os.path.exists(text):  # False for a name that no file can have
            return cls(name=text, label=text)
        return cls(name=name, options=parse_settings(split_options(tail)), label=text)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Reads ``replay:selector=mf,beta=0.2@replay-mf``."""
        body, _, label = text.partition("@")
        name, _, tail = body.partition(":")
        if tail and "=" not in tail:
            raise InputError(
                f"Expected NAME:key=value,... (got '{text}'); write for example replay:selector=mf."
            )
        options = parse_settings(split_options(tail)) if tail else {}
        return cls(name=name, options=options, label=label or body)


def split_options(text: str) -> list[str]:
    """Parts ``key=value,...`` at its commas but those of lists, as in ``additions=[9,11]``."""
    return re.split(r",(?![^\[]*\])", text)


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


class Complete(NamedTuple):
    """Every setting of a method, in its section, and where each comes from."""

    settings: MethodConfig
    training: TrainConfig
    model: ModelConfig
    protocol: Protocol
    origins: dict[str, str]


def complete(
    dataset: str | None,
    method: str,
    given: Mapping[str, Mapping[str, Any]],
    presets: Presets = "tuned",
) -> Complete:
    """Puts defaults, the dataset's protocol and preset and what is given together, in that order.

    What is given stands under its origin, as ``--set`` or a file's name; later ones win, and keys
    that the method has not are left out. Other origins are ``default``, ``protocol`` (the authors'
    split of the dataset), and those in :data:`ORIGINS`.
    """
    cls = method_class(method)
    known = settable_keys(method)
    usual = usual_protocol(dataset, method)
    changed = {key for key, value in Protocol() if getattr(usual, key) != value}
    values: dict[str, Any] = usual.model_dump()
    origins = {key: "protocol" if key in changed else "default" for key in values}
    if usual != protocol_for(dataset or ""):
        origins["validation_fraction"] = "ours"
    options = {key: value for part in given.values() for key, value in part.items()}
    layers = list(preset_for(dataset, method, presets, options).items())
    for origin, part in given.items():
        layers += [(key, (value, origin)) for key, value in part.items()]
    for key, (value, origin) in layers:
        if key in known:
            values[key], origins[key] = value, origin
    if values.get("stream") == "time" and origins["pooled"] == "protocol":
        values["pooled"] = False  # that is how the authors split a class stream
    own, sections = cls.Config.model_fields, dict[str, Any]()
    for name, section in {"settings": cls.Config, **SECTIONS}.items():
        # What a method has a setting of its own for is not the training's.
        mine = own if name == "settings" else section.model_fields.keys() - own.keys()
        fields = [key for key in section.model_fields if key in mine and key in values]
        sections[name] = parse(section, {key: values[key] for key in fields})
    check_backbone(cls, sections["model"])
    keys = [key for section in sections.values() for key in type(section).model_fields]
    return Complete(**sections, origins={key: origins.get(key, "default") for key in keys})


def resolve(
    dataset: Variant,
    method: Variant,
    seed: int,
    shared: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
) -> RunConfig:
    """Makes the complete description of a run from what a user asks for.

    ``shared`` are settings for every method that has them; see :func:`check_shared`.
    """
    known = settable_keys(method.name)
    for key in method.options:
        if key not in known:
            raise unknown_setting(key, [method.name], f"key of method '{method.name}'")
    applying = {key: value for key, value in (shared or {}).items() if key in known}
    overrides = {**applying, **method.options}
    found = complete(dataset.name, method.name, {"user": overrides}, presets)
    described = {
        "dataset": dataset.name,
        "dataset_options": dataset.options,
        "method": method.name,
        "label": method.label,
        "overrides": overrides,
        "seed": seed,
        "settings": found.settings.model_dump(mode="json"),
    }
    return parse(RunConfig, described | {name: getattr(found, name) for name in SECTIONS})


@cache
def _presets_file() -> dict[str, Any]:
    text = resources.files("evergraph").joinpath("presets.yaml").read_text("utf-8")
    return load_mapping(text, "presets.yaml")


def read_presets() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Reads ``presets.yaml``: dataset → method → setting → origin → value."""
    return {name: part for name, part in _presets_file().items() if name != "own"}


def preset_for(
    dataset: str | None,
    method: str,
    presets: Presets = "tuned",
    options: Mapping[str, Any] | None = None,
) -> dict[str, tuple[Any, str]]:
    """Returns a method's preset on a dataset: setting → (value, origin); some may not be its.

    Settings of the paper leave the methods that it compares with their own papers' defaults. A
    variant with one of ``options`` may have a preset of its own, which comes last.
    """
    own = frozenset[str](_presets_file()["own"].get(method, ()))
    here = read_presets().get(dataset or "", {})
    names = [method, *(f"{method}:{key}={value}" for key, value in (options or {}).items())]
    parts = [(here.get("all", {}), own)]
    parts += [(here.get(name, {}), frozenset[str]()) for name in names]
    if presets != "tuned":
        parts.insert(0, (read_presets()["all"]["all"], own))
    values: dict[str, tuple[Any, str]] = {}
    for origin in ORIGINS[presets]:
        for part, skipped in parts:
            for key, by_origin in part.items():
                if origin in by_origin and key not in skipped:
                    values[key] = (by_origin[origin], origin)
    return values


def usual_protocol(dataset: str | None, method: str) -> Protocol:
    """Returns the paper's protocol, with validation nodes where the method needs some."""
    protocol = protocol_for(dataset or "")
    if "validation" in method_class(method).needs and not protocol.validation_fraction:
        return protocol.model_copy(update={"validation_fraction": NEEDED_VALIDATION})
    return protocol


def check_shared(shared: Mapping[str, Any], methods: Sequence[str]) -> None:
    """Refuses a shared key that none of the methods has."""
    known = set().union(*(settable_keys(name) for name in methods))
    for key in shared:
        if key not in known:
            raise unknown_setting(key, methods)


def unknown_setting(key: str, methods: Sequence[str], kind: str = "key") -> InputError:
    """Builds the error for a setting that none of the methods has, but perhaps others have."""
    owners = [name for name in METHODS if key in method_class(name).Config.model_fields]
    if owners:
        return InputError(
            f"Expected a setting of {' or '.join(methods)} (got '{key}', which belongs to "
            f"{', '.join(owners)}); leave it out or name another method."
        )
    return unknown_name(kind, key, set().union(*map(settable_keys, methods)))


def settable_keys(method: str) -> set[str]:
    """Lists every key that ``--set`` takes for a method."""
    config = method_class(method).Config
    sections = [config, *SECTIONS.values()]
    keys = {key for section in sections for key in section.model_fields}
    return keys - {"name"}


def load_mapping(text: str, source: str) -> dict[str, Any]:
    """Reads a YAML mapping, turning every failure into one sentence."""
    content = load_yaml(text, source)
    if not isinstance(content, dict):
        raise InputError(
            f"Expected '{source}' to hold keys and values (got {type(content).__name__}); fix it."
        )
    return {str(key): value for key, value in content.items()}

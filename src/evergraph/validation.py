"""Configuration: read as YAML and validated; unknown keys are errors, errors are sentences."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from evergraph.errors import InputError, unknown_name


class Config(BaseModel):
    """Base of every configuration object: immutable, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def parse(cls: type[ConfigT], values: Mapping[str, Any], prefix: str = "") -> ConfigT:
    """Validates ``values`` as a ``cls``, turning the first failure into one sentence.

    ``prefix`` stands before the name of a field that is part of a larger document.
    """
    for key, value in values.items():
        if isinstance(value, int) and abs(value) >= 2**63:  # no tensor holds it
            raise InputError(f"Expected '{key}' below 2^63 (got {_repr(value)}); lower it.")
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise _sentence(cls, error, prefix) from None


def _sentence(cls: type[BaseModel], error: ValidationError, prefix: str) -> InputError:
    # A value that fits no branch of a union gives one failure per branch; the deepest one
    # points at the entry that is wrong.
    first = max(error.errors(include_url=False), key=lambda failure: len(failure["loc"]))
    if first["type"] == "extra_forbidden":
        return unknown_name("key", str(first["loc"][-1]), cls.model_fields)
    path = [part for part in first["loc"] if not _is_branch(part)]
    key = str(path[-1]) if path else cls.__name__
    if first["type"] == "value_error":
        return InputError(str(first["ctx"]["error"]))
    if first["type"] == "missing":
        return InputError(f"Expected a value for '{key}' (got none); add it.")
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    field = cls.model_fields.get(str(path[0])) if len(path) == 1 else None
    expected = _describe(field.annotation, field.metadata) if field is not None else None
    what = expected or _first_lower(str(first["msg"]))
    return InputError(
        f"Expected '{prefix}{shown.lstrip('.')}' {what} (got {_repr(first['input'])}); "
        "change its value."
    )


def _repr(value: Any) -> str:
    """Writes a value out; Python refuses to for numbers of thousands of digits."""
    try:
        return repr(value)
    except ValueError:
        return "a number of too many digits"


def _is_branch(part: int | str) -> bool:
    """Tells pydantic's names of union branches from real keys."""
    return isinstance(part, str) and (
        "[" in part
        or part in {"float", "int", "str", "bool", "constrained-float", "constrained-int"}
    )


def _describe(annotation: Any, metadata: list[Any]) -> str | None:
    """Says what a field takes: an interval, a choice, or either of several."""
    if get_origin(annotation) is Literal:
        *first, last = map(repr, get_args(annotation))
        return "to be " + (f"{', '.join(first)} or {last}" if first else last)
    if get_origin(annotation) in {Union, UnionType}:
        parts = [_describe(part, metadata) for part in get_args(annotation) if part is not NoneType]
        known = [part for part in parts if part]
        return ", or ".join(known) if known else None
    if get_origin(annotation) is Annotated:
        inner, *extra = get_args(annotation)
        flat = [item for part in extra for item in getattr(part, "metadata", [part])]
        return _describe(inner, flat)
    return _interval(annotation, metadata)


_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}


def _interval(annotation: Any, metadata: list[Any]) -> str | None:
    """Describes numeric bounds, if there are any."""
    bounds: dict[str, Any] = {}  # by the name that the bound has: ge, gt, le or lt
    for item in metadata:
        bounds |= {name: getattr(item, name) for name in _BOUNDS if hasattr(item, name)}
    kind = "as an integer " if annotation is int else ""
    if len(bounds) == 2:
        (left, low), (right, high) = sorted(bounds.items())
        return (
            f"{kind}in {'(' if left == 'gt' else '['}{low}, {high}{')' if right == 'lt' else ']'}"
        )
    for name, value in bounds.items():
        return f"{kind}{_BOUNDS[name]} {value}"
    return None


def _first_lower(text: str) -> str:
    prefix = "Input should be "
    return f"to be {text[len(prefix) :]}" if text.startswith(prefix) else f"to be valid: {text}"


#: A configuration has about 2,000 characters; reading is slow in the length.
MAX_LENGTH = 100_000
#: Nothing is nested deeper; going to Python's limit takes most of a second.
MAX_DEPTH = 50


class PlainLoader(yaml.SafeLoader):
    """Reads plain values; a reference to another value is refused.

    A few lines of references to references stand for more values than fit in any memory.
    """

    depth = 0  # of the value that is being composed

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Composes one value that is written out."""
        if self.check_event(yaml.AliasEvent):
            raise InputError(
                "Expected no references (got one, written *name); write the value out."
            )
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError("too deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Constructs keys and values; of a key that comes twice nobody knows which is meant."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise InputError(f"Expected '{key}' once (got it twice); keep one.")
        return super().construct_mapping(node, deep)


class PlainDumper(yaml.SafeDumper):
    """Writes every value out, also one that comes twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Tells not to refer to a value written before."""
        return True


def dump_yaml(content: Any) -> str:
    """Writes plain values so that :func:`load_yaml` reads them back."""
    return yaml.dump(content, Dumper=PlainDumper, sort_keys=False, allow_unicode=True)


def load_yaml(text: str, source: str) -> Any:
    """Reads YAML, turning every failure into one sentence."""
    if len(text) > MAX_LENGTH:
        raise InputError(
            f"Expected '{source}' of at most {MAX_LENGTH} characters (got {len(text)}); check that "
            "it is a configuration."
        )
    try:
        return yaml.load(text, Loader=PlainLoader)
    except InputError as error:
        raise InputError(f"In '{source}': {error}") from None
    except Exception as error:  # the loader lets many kinds through, such as KeyError
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"Expected '{source}' to be YAML (it is not{where}); fix it.") from None

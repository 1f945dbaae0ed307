"""Frozen, validated configuration: unknown keys are errors, errors are sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import annotated_types
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from evergraph.errors import InputError, unknown_name


class Config(BaseModel):
    """Base of every configuration object: immutable, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def parse(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """Validates ``values`` as a ``cls``, turning the first failure into one sentence."""
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise _sentence(cls, error) from None


def _sentence(cls: type[BaseModel], error: ValidationError) -> InputError:
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    key = path[-1] if path else cls.__name__
    if first["type"] == "extra_forbidden":
        return unknown_name("key", key, cls.model_fields)
    if first["type"] == "value_error":
        return InputError(str(first["ctx"]["error"]))
    top = path[0] if path else ""
    field = cls.model_fields.get(top)
    shown = next((part for part in reversed(path) if part in cls.model_fields), top or key)
    if first["type"] == "missing":
        return InputError(f"Expected a value for '{key}' (got none); add it.")
    expected = _range(field) if field is not None and len(path) == 1 else None
    what = expected or _first_lower(str(first["msg"]))
    return InputError(f"Expected '{shown}' {what} (got {first['input']!r}); change its value.")


def _range(field: FieldInfo) -> str | None:
    """Describes a numeric field's bounds as an interval, if it has any."""
    low: Any = None
    high: Any = None
    open_low = open_high = False
    for item in field.metadata:
        if isinstance(item, annotated_types.Ge):
            low = item.ge
        elif isinstance(item, annotated_types.Gt):
            low, open_low = item.gt, True
        elif isinstance(item, annotated_types.Le):
            high = item.le
        elif isinstance(item, annotated_types.Lt):
            high, open_high = item.lt, True
    kind = "an integer " if field.annotation is int else ""
    if low is not None and high is not None:
        return f"{kind}in {'(' if open_low else '['}{low}, {high}{')' if open_high else ']'}"
    if low is not None:
        return f"{kind}{'above' if open_low else 'of at least'} {low}"
    if high is not None:
        return f"{kind}{'below' if open_high else 'of at most'} {high}"
    return None


def _first_lower(text: str) -> str:
    prefix = "Input should be "
    return f"to be {text[len(prefix) :]}" if text.startswith(prefix) else f"to be valid: {text}"

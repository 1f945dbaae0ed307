"""Parameters as scikit-learn's estimators have them, without importing it: that takes 77 MB."""

from __future__ import annotations

from inspect import signature
from typing import Any, Self

from evergraph.errors import unknown_name


class Parameters:
    """What ``clone``, pipelines and searches of scikit-learn ask of a classifier.

    Parameters are the arguments of the constructor, which stores them untouched.
    """

    _estimator_type = "classifier"  # asked for by releases that know no tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name; none of them has parameters itself."""
        del deep
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Changes parameters; they count for what is begun from now on."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise unknown_name(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Shows what differs from the defaults."""
        default = {name: found.default for name, found in signature(type(self)).parameters.items()}
        own = {name: value for name, value in self.get_params().items() if value != default[name]}
        told = ", ".join(f"{name}={value!r}" for name, value in own.items())
        return f"{type(self).__name__}({told})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: PLC0415 - see above

        return type("Plain", (ClassifierMixin, BaseEstimator), {})().__sklearn_tags__()

"""Learning without gradient descent: smoothed features, moments per class, ridge regression."""

from evergraph.closed_form.features import (
    FeatureConfig,
    HeldRows,
    RowSource,
    SmoothedFeatures,
    readable_hops,
)
from evergraph.closed_form.hops import CHOICES, HopChoice, choose_hops
from evergraph.closed_form.moments import ClassMoments, Moments
from evergraph.closed_form.ridge import RidgeSystem, left_out_errors

__all__ = [
    "CHOICES",
    "ClassMoments",
    "FeatureConfig",
    "HeldRows",
    "HopChoice",
    "Moments",
    "RidgeSystem",
    "RowSource",
    "SmoothedFeatures",
    "choose_hops",
    "left_out_errors",
    "readable_hops",
]

"""Learning without gradient descent: smoothed features, moments per class, ridge regression."""

from evergraph.closed_form.features import FeatureConfig, HeldRows, RowSource, SmoothedFeatures
from evergraph.closed_form.moments import ClassMoments, Moments
from evergraph.closed_form.ridge import RidgeSystem, left_out_errors

__all__ = [
    "ClassMoments",
    "FeatureConfig",
    "HeldRows",
    "Moments",
    "RidgeSystem",
    "RowSource",
    "SmoothedFeatures",
    "left_out_errors",
]

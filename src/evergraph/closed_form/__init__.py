"""Learning without gradient descent: smoothed features, moments per class, ridge regression."""

from evergraph.closed_form.drift import Drift
from evergraph.closed_form.evidence import Evidence
from evergraph.closed_form.features import (
    FeatureConfig,
    HeldRows,
    RowSource,
    SmoothedFeatures,
    readable_hops,
)
from evergraph.closed_form.hops import CHOICES, HopChoice, choose_hops
from evergraph.closed_form.moments import ClassMoments, Moments
from evergraph.closed_form.reading import SHARES, Known, judge_shares, read
from evergraph.closed_form.ridge import RidgeSystem, left_out_errors
from evergraph.closed_form.smoothing import Smoothing, smoothing

__all__ = [
    "CHOICES",
    "SHARES",
    "ClassMoments",
    "Drift",
    "Evidence",
    "FeatureConfig",
    "HeldRows",
    "HopChoice",
    "Known",
    "Moments",
    "RidgeSystem",
    "RowSource",
    "SmoothedFeatures",
    "Smoothing",
    "choose_hops",
    "judge_shares",
    "left_out_errors",
    "read",
    "readable_hops",
    "smoothing",
]

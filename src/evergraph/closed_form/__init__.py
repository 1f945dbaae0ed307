"""Learning without gradient descent: smoothed features, moments per class, ridge regression."""

from evergraph.closed_form.beliefs import affinity, exchange, neighbours
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
from evergraph.closed_form.own_features import OwnFeatures
from evergraph.closed_form.questions import Known, Questions
from evergraph.closed_form.reader import Reader, Surroundings
from evergraph.closed_form.reading import SHARES, judge_shares, read
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
    "OwnFeatures",
    "Questions",
    "Reader",
    "RidgeSystem",
    "RowSource",
    "SmoothedFeatures",
    "Smoothing",
    "Surroundings",
    "affinity",
    "choose_hops",
    "exchange",
    "judge_shares",
    "left_out_errors",
    "neighbours",
    "read",
    "readable_hops",
    "smoothing",
]

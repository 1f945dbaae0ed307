"""One head per task: which columns a loss reads, and what recorded runs meant."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anchored import context, stream_of
from evergraph.config import RunConfig, Variant, resolve
from evergraph.estimator.config import make_config, read_config
from evergraph.methods import make_method

METHODS = ("lwf", "ewc", "mas", "twp")


@pytest.mark.parametrize("over", ["current", "seen"])
@pytest.mark.parametrize("name", METHODS)
def test_loss_moves_the_rows_of_its_columns_alone(make_graph, name, over):
    ctx = context(stream_of(make_graph), 1, plain=name == "twp")
    make_method(name, {"loss_over": over}).loss(ctx).backward()
    moved = (ctx.model.head.weight.grad != 0).any(dim=1)
    assert moved.tolist() == [over == "seen", over == "seen", True, True]


@pytest.mark.parametrize("name", ["ewc", "mas", "twp"])
def test_importance_is_of_the_same_columns(make_graph, name):
    ctx = context(stream_of(make_graph), 1, plain=name == "twp")
    weight = make_method(name).importance(ctx)["head.weight"]
    assert (weight > 0).any(dim=1).tolist() == [False, False, True, True]


def test_returning_class_belongs_to_the_task(make_graph):
    view = stream_of(make_graph).view(1)
    labels = torch.where(view.train_labels == 3, 0, view.train_labels)
    ctx = context(stream_of(make_graph), 1, labels=labels)
    assert ctx.task_classes.tolist() == [0, 2, 3]
    logits = torch.arange(4.0).repeat(len(labels), 1)
    shown, place = make_method("ewc").narrow(ctx, logits, labels)
    assert shown[0].tolist() == [0, 2, 3]
    assert torch.equal(shown[torch.arange(len(labels)), place], labels.float())


def test_single_class_is_learned_against_all_seen(make_graph):
    ctx = context(stream_of(make_graph), 1)
    view = replace(ctx.view, new_classes=(), train_labels=torch.ones_like(ctx.view.train_labels))
    alone = replace(ctx, view=view)
    assert alone.task_classes.tolist() == [0, 1, 2, 3]
    assert make_method("mas").loss(alone).item() > 0.1


@pytest.mark.parametrize("name", METHODS)
def test_recorded_settings_without_the_columns_mean_all_seen(name):
    new = resolve(Variant.parse("cora"), Variant.parse(name), 0)
    old = resolve(Variant.parse("cora"), Variant.parse(name), 0, dict(config_class(name).former))
    values = old.model_dump(mode="json")
    for key in config_class(name).former:
        del values["settings"][key]
    read = RunConfig.from_values(values)
    assert read.settings["loss_over"] == "seen"
    assert new.settings["loss_over"] == "current"
    assert read.hash == old.hash != new.hash
    state = make_config({"method": name}).model_dump(mode="json")
    assert read_config(state).settings["loss_over"] == "current"
    for key in config_class(name).former:
        del state["settings"][key]
    assert read_config(state).settings["loss_over"] == "seen"


def config_class(name):
    return type(make_method(name)).Config

"""Transactions on a state folder: a change is noted, learned, committed — or resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from evergraph.errors import InputError
from evergraph.estimator.change import Change
from evergraph.estimator.config import EstimatorConfig, make_config
from evergraph.estimator.folder import StateFolder
from evergraph.estimator.state import State
from evergraph.estimator.step import OnEvent, complete, prepare


def learn_into(
    path: Path,
    make_change: Callable[[State], Change],
    *,
    given: Mapping[str, Any],
    device: torch.device,
    on_event: OnEvent | None = None,
) -> State:
    """Applies a change to a folder's state, creating the folder for the first one.

    The change is on disk before it is learned: whatever ends the process, :func:`resume` takes
    it up again, to the same bits. A change that is refused leaves nothing behind.

    Args:
        path: The state's folder.
        make_change: Makes the change for the present state.
        given: Parameters of a new state; those of an existing one must not differ.
        device: Where to learn.
        on_event: Called with what happens during training.
    """
    folder = StateFolder(path)
    if not folder.exists:  # refuse what is wrong before anything is created
        fresh = State.initial(make_config(given))
        prepare(fresh, make_change(fresh))
    with folder.writing():
        _settle(folder)
        number = folder.generation()
        state = State.initial(make_config(given)) if number is None else folder.load()[0]
        check_given(state.config, given, path)
        change = make_change(state)
        prepare(state, change)
        if number is None:
            number = 0
            folder.commit(state, number)
        folder.pending.write(change, number)
        return _finish(folder, change, device, on_event)


def resume(
    path: Path, *, device: torch.device, on_event: OnEvent | None = None
) -> tuple[State, str]:
    """Finishes what was interrupted; returns the state and a sentence about what was done.

    A damaged current generation is left for the newest whole one.
    """
    folder = StateFolder(path)
    if not folder.exists:
        folder.load()  # says that there is none
    with folder.writing():
        told = []
        if folder.generation_or_none() is None and not folder.has_generations:
            raise InputError(
                f"Expected '{path}' to hold a generation (got none: it was interrupted before its "
                "first one); give the change again."
            )
        went_back = folder.roll_back()
        if went_back is not None:
            told.append(f"Generation {went_back} is current again: the one after it was damaged.")
        state, number = folder.load()
        pending = folder.pending.read()
        if pending is None or pending[1] != number:
            folder.pending.clear()
            told.append(f"Nothing was unfinished: generation {number} is whole.")
            return state, " ".join(told)
        state = _finish(folder, pending[0], device, on_event)
        told.append(f"The interrupted change is learned: generation {number + 1}.")
        return state, " ".join(told)


def check_given(there: EstimatorConfig, given: Mapping[str, Any], path: Path) -> None:
    """Refuses parameters that differ from those a state began with."""
    known = there.parameters.model_dump()
    settings = {**known["settings"], **given.get("settings", {})}
    if make_config({**known, **given, "settings": settings}) == there:
        return
    before = {**there.settings, **there.training.model_dump(), **there.model.model_dump(), **known}
    named = {**given.get("settings", {}), **given}
    names = [name for name, value in named.items() if before.get(name) != value]
    raise InputError(
        f"Expected the settings that '{path}' began with (got another "
        f"{', '.join(name for name in names if name != 'settings')}); leave it out or begin "
        "another state."
    )


def _settle(folder: StateFolder) -> None:
    """Refuses to begin while a change is unfinished; forgets one that is finished."""
    pending = folder.pending.read()
    if pending is None:
        return
    if pending[1] == folder.generation():
        raise InputError(
            f"Expected no unfinished change in '{folder.path}' (got one that was interrupted); run "
            f"'evergraph resume {folder.path}' first."
        )
    folder.pending.clear()


def _finish(
    folder: StateFolder, change: Change, device: torch.device, on_event: OnEvent | None
) -> State:
    """Learns a change that is noted, and commits it."""
    state, number = folder.load()
    try:
        following = complete(state, change, prepare(state, change), device, on_event)
        folder.commit(following, number + 1)
    except Exception:  # not a kill: the change itself is wrong, or the disk is full
        folder.pending.clear()
        raise
    folder.pending.clear()
    return following

"""Transactions on a state's folder: a change is noted, learned, committed — or resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from evergraph.errors import InputError, unknown_name
from evergraph.estimator.chunks import Damage, Found
from evergraph.estimator.config import EstimatorConfig, make_config
from evergraph.estimator.content import (
    change_content,
    restore_change,
    restore_state,
    state_content,
)
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import State
from evergraph.estimator.step import OnEvent, complete, prepare
from evergraph.estimator.store import Store
from evergraph.methods import TrainConfig, method_class
from evergraph.nn import ModelConfig
from evergraph.validation import parse


def load_state(path: Path, number: int | None = None) -> tuple[State, int]:
    """Reads a version of a state, the current one by default, and its number."""
    store = Store(path)
    try:
        return _read(store, number)
    except Damage as damage:
        name = "the current version" if number is None else f"version {number}"
        raise InputError(
            f"Expected {name} in '{path}' to be whole (got damage in {damage}); "
            f"{_remedy(store, number)}."
        ) from None


def save_state(path: Path, state: State, came_from: int | None) -> int:
    """Writes a state as the next version; returns its number.

    A folder that is not at the version that the state comes from is left alone, and so is one
    with an unfinished change: that change would be lost, or made to another state.
    """
    store = Store(path)
    content = state_content(state)
    with store.writing():
        there = None if store.is_empty else _current(store)
        if there != came_from:
            raise InputError(
                f"Expected '{path}' at version {came_from}, where this estimator comes from (got "
                f"{there}); load it again or save elsewhere."
            )
        if there is None:
            store.create(Found(0, content))
            return 0
        _check_settled(store)
        store.write(Found(there + 1, content))
        return there + 1


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
    store = Store(path)
    if store.is_empty:  # refuse what is wrong before anything is created
        fresh = State.initial(make_config(given))
        prepare(fresh, make_change(fresh))
    with store.writing():
        new = store.is_empty
        if new:
            state, number = State.initial(make_config(given)), 0
        else:
            state, number = load_state(path)
            _check_settled(store)
            check_given(state.config, given, path)
        change = make_change(state)
        prepared = prepare(state, change)
        if new:
            store.create(Found(number, state_content(state)), change_content(change))
        else:
            store.note(Found(number, change_content(change)))
        try:
            following = complete(state, change, prepared, device, on_event)
            store.write(Found(number + 1, state_content(following)))
        except Exception:  # not a kill: the change itself is wrong, or the disk is full
            with suppress(InputError, Damage):
                store.discard()
            raise
        return following


def resume(
    path: Path, *, device: torch.device, discard: bool = False, on_event: OnEvent | None = None
) -> tuple[State, str]:
    """Finishes what was interrupted; returns the state and a sentence about what was done.

    A damaged current version is left for the newest whole one.

    Args:
        path: The state's folder.
        device: Where to learn.
        discard: Whether to forget an unfinished change instead of learning it.
        on_event: Called with what happens during training.
    """
    store = Store(path)
    store.check_there()
    with store.writing():
        state, number, told = _go_back(store)
        if discard:
            had = store.has_pending
            store.discard()
            done = "The unfinished change is discarded" if had else "Nothing was unfinished"
            return state, f"{told}{done}: version {number} is current."
        change = _read_pending(store)
        if change is None:
            return state, f"{told}Nothing was unfinished: version {number} is whole."
        state = complete(state, change, prepare(state, change), device, on_event)
        store.write(Found(number + 1, state_content(state)))
        return state, f"{told}The interrupted change is learned: version {number + 1}."


def check_given(there: EstimatorConfig, given: Mapping[str, Any], path: Path) -> None:
    """Refuses parameters that differ from those a state has.

    Only what is given is compared, with what is stored: defaults of a later release do not matter.
    """
    named = {key: value for key, value in given.items() if key != "settings" and value is not None}
    settings = dict(given.get("settings") or {})
    if "buffer_size" in named:
        settings["buffer_size"] = named.pop("buffer_size")
    known = there.parameters.model_dump()
    odd = [key for key, value in named.items() if known[key] != value]
    if "method" not in odd:
        method = method_class(there.parameters.method).Config
        before: dict[str, Any] = {}
        parts = (
            (method, there.settings),
            (TrainConfig, there.training),
            (ModelConfig, there.model),
        )
        for kind, stored in parts:
            complete = parse(kind, stored if isinstance(stored, dict) else stored.model_dump())
            before |= dict.fromkeys(kind.model_fields, (kind, complete))
        for key, value in settings.items():
            if key not in before:
                raise unknown_name(f"setting of method '{there.parameters.method}'", key, before)
            kind, complete = before[key]
            if parse(kind, {**complete.model_dump(), key: value}) != complete:
                odd.append(key)
    if odd:
        raise InputError(
            f"Expected the settings that '{path}' began with (got another {', '.join(odd)}); leave "
            "it out or begin another state."
        )


def _read(store: Store, number: int | None) -> tuple[State, int]:
    found = store.read(number)
    try:
        return restore_state(found.content), found.number
    except Exception:  # checksums hold, so that somebody wrote nonsense
        raise Damage("its content") from None


def _read_pending(store: Store) -> Change | None:
    try:
        found = store.read_pending()
        return None if found is None else restore_change(found.content)
    except InputError:
        raise
    except Exception:  # whatever foreign bytes bring about
        raise InputError(
            f"Expected a whole unfinished change in '{store.folder}' (it is damaged); run "
            f"'evergraph resume {store.folder} --discard' and give the change again."
        ) from None


def _current(store: Store) -> int:
    try:
        numbers = store.numbers()
    except Damage as damage:
        raise InputError(
            f"Expected a whole state in '{store.folder}' (got damage in {damage}); "
            f"{_remedy(store, None)}."
        ) from None
    if not numbers:
        raise InputError(
            f"Expected a version in '{store.folder}' (got none); restore a copy of the folder."
        )
    return numbers[-1]


def _check_settled(store: Store) -> None:
    if store.has_pending:
        raise InputError(
            f"Expected no unfinished change in '{store.folder}' (got one that was interrupted); "
            f"run 'evergraph resume {store.folder}' first, or with --discard to forget it."
        )


def _whole(store: Store, but: int | None) -> tuple[State, int] | None:
    """Finds the newest whole version other than one, if any."""
    try:
        numbers = store.numbers()
    except Damage:
        return None
    but = numbers[-1] if but is None and numbers else but
    for number in reversed(numbers):
        if number != but:
            with suppress(Damage):
                return _read(store, number)
    return None


def _remedy(store: Store, damaged: int | None) -> str:
    other = _whole(store, damaged)
    if other is None:
        return "restore a copy of the folder"
    return (
        f"version {other[1]} is still there: read it as such (--version {other[1]}), or run "
        f"'evergraph resume {store.folder}' to go back to it"
    )


def _go_back(store: Store) -> tuple[State, int, str]:
    """Reads the current version, or makes the newest whole one current."""
    try:
        return *_read(store, None), ""
    except Damage:
        other = _whole(store, None)
        if other is None:
            raise InputError(
                f"Expected a whole version in '{store.folder}' (got none); restore a copy of the "
                "folder."
            ) from None
    state, number = other
    lost = store.has_pending
    store.go_back(number)
    told = f"Version {number} is current again: the one after it was damaged. "
    if lost:
        told += "A change to the damaged one is lost: give it again. "
    return state, number, told

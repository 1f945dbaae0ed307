"""Transactions on a state's folder: a change is noted, learned, committed — or resumed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from evergraph.errors import InputError, unknown_name
from evergraph.estimator.blocks import Damage
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
from evergraph.events import Stage
from evergraph.methods import method_class
from evergraph.validation import parse


def load_state(path: Path, number: int | None = None) -> tuple[State, int]:
    """Reads a version of a state, the current one by default, and its number."""
    store = Store(path)
    try:
        return _read(store, number)
    except Damage as damage:
        name = "the current version" if number is None else f"version {number}"
        remedy, found = "restore a copy of the folder", _newest_whole(store)
        if found is not None:
            remedy = (
                f"version {found[1]} is still there: read it as such (--version {found[1]}), or "
                f"run 'evergraph resume {path}' to go back to it"
            )
        raise InputError(
            f"Expected {name} in '{path}' to be whole (got damage in {damage.what}); {remedy}."
        ) from None


def _read(store: Store, number: int | None) -> tuple[State, int]:
    found, content, stored = store.read(number)
    try:
        state = restore_state(content)
        return replace(state, saved=(store.folder.resolve(), found, stored)), found
    except Exception:  # checksums hold, so that somebody wrote nonsense
        raise Damage("its content") from None


def _newest_whole(store: Store) -> tuple[State, int] | None:
    with suppress(Damage):
        for number in reversed(store.numbers()):
            with suppress(Damage):
                return _read(store, number)
    return None


def save_state(path: Path, state: State) -> State:
    """Writes a state as the next version; returns it as one that comes from there.

    A folder that is not at the version that the state comes from is left alone, and so is one
    with an unfinished change: that change would be lost, or made to another state.
    """
    store, place = Store(path), path.resolve()
    came_from, before = None, None
    if state.saved is not None and state.saved[0] == place:
        _, came_from, before = state.saved
    with store.writing():
        there = None if store.is_empty else store.newest()
        expected = None if before is None else (came_from, before.checksum)
        if there != expected:
            got = "no state" if there is None else f"version {there[0]}"
            if there is not None and there[0] == came_from:
                got = f"another {got}"
            wanted = f"to be at version {came_from}, where this estimator comes from"
            if came_from is None:
                wanted = "to hold no state yet"
            raise InputError(
                f"Expected '{path}' {wanted} (got {got}); load it again or save elsewhere."
            )
        if there is not None:
            _check_settled(store)
        number = 0 if there is None else there[0] + 1
        stored = store.commit(number, state_content(state), before=before)
        return replace(state, saved=(place, number, stored))


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it is read again below
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
        # The change is on disk before it is learned.
        first = state_content(state) if new else None
        stored = store.commit(number, first, change_content(change))
        before = state.saved[2] if state.saved is not None else stored
        try:
            following = complete(state, change, prepared, device, on_event)
            if on_event is not None:
                on_event(Stage(number, "saving", 1, 1))
            store.commit(number + 1, state_content(following), before=before)
        except Exception:  # not a kill: the change itself is wrong, or the disk is full
            with suppress(InputError):
                store.commit(number)
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
        found, told = _newest_whole(store), ""
        if found is None:
            store.numbers()  # says what is wrong if nothing can be read
            raise InputError(
                f"Expected a whole version in '{path}' (got none); restore a copy of the folder."
            )
        state, number = found
        had = store.has_pending
        if number < store.numbers()[-1]:
            told = f"Version {number} is current again: the one after it was damaged. "
            told += "A change to the damaged one is lost: give it again. " if had else ""
            store.commit(number)
            had = False
        if discard:
            store.commit(number)
            done = "The unfinished change is discarded" if had else "Nothing was unfinished"
            return state, f"{told}{done}: version {number} is current."
        if not had:
            return state, f"{told}Nothing was unfinished: version {number} is whole."
        change = _read_pending(store)
        state = complete(state, change, prepare(state, change), device, on_event)
        store.commit(number + 1, state_content(state), before=state.saved and state.saved[2])
        return state, f"{told}The interrupted change is learned: version {number + 1}."


def _read_pending(store: Store) -> Change:
    try:
        return restore_change(store.read(table="pending")[1])
    except Exception:  # whatever foreign bytes bring about
        raise InputError(
            f"Expected a whole unfinished change in '{store.folder}' (it is damaged); run "
            f"'evergraph resume {store.folder} --discard' and give the change again."
        ) from None


def _check_settled(store: Store) -> None:
    if store.has_pending:
        raise InputError(
            f"Expected no unfinished change in '{store.folder}' (got one that was interrupted); "
            f"run 'evergraph resume {store.folder}' first, or with --discard to forget it."
        )


def check_given(there: EstimatorConfig, given: Mapping[str, Any], path: Path) -> None:
    """Refuses parameters that differ from those a state has.

    Only what is given is compared, with what is stored: defaults of a later release do not matter.
    """
    settings = dict(given.get("settings") or {})
    settings |= {key: given[key] for key in ("buffer_size",) if given.get(key) is not None}
    known = there.parameters.model_dump(exclude={"settings", "buffer_size"})
    odd = [key for key, value in known.items() if given.get(key) not in {None, value}]
    if "method" not in odd:
        method = parse(method_class(there.method).Config, there.settings)
        owners = {
            key: part
            for part in (there.model, there.training, method)
            for key in type(part).model_fields
        }
        for key, value in settings.items():
            if key not in owners:
                raise unknown_name(f"setting of method '{there.method}'", key, owners)
            before = owners[key]
            after = parse(type(before), {**before.model_dump(), key: value})
            if getattr(after, key) != getattr(before, key):
                odd.append(key)
    if odd:
        raise InputError(
            f"Expected the settings that '{path}' began with (got another {', '.join(odd)}); leave "
            "it out or begin another state."
        )

"""Transactions on a state's folder: a change is noted, learned, committed — or resumed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from evergraph.errors import InputError, unknown_name
from evergraph.estimator.blocks import Damage, Stored
from evergraph.estimator.config import EstimatorConfig, make_config
from evergraph.estimator.content import change_content, restore_change, restore_state, state_content
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import State
from evergraph.estimator.step import Prepared, complete, prepare
from evergraph.estimator.store import DESCENT, Store
from evergraph.events import OnEvent, Stage
from evergraph.launch import check_workers, launch
from evergraph.methods import method_class
from evergraph.team import ALONE, Team
from evergraph.train import Keeper, check_team
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
            store.check_settled()
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
    _try_first(store, make_change, given)
    with store.writing():
        state, number, change, prepared, before = _note(store, make_change, given)
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


def note_change(
    path: Path, make_change: Callable[[State], Change], *, given: Mapping[str, Any], workers: int
) -> None:
    """Puts a change on disk for so many workers to :func:`resume`; see :func:`learn_into`."""
    store = Store(path)
    state = State.initial(make_config(given)) if store.is_empty else load_state(path)[0]
    check_team(state.learner.method, state.config.training, Team(size=workers))
    _try_first(store, make_change, given)
    with store.writing():
        _note(store, make_change, given)
        (path / DESCENT).unlink(missing_ok=True)


def learn_together(
    state: State, change: Change, device: str, workers: int | Mapping[str, Any]
) -> State:
    """Applies a change in several processes, by way of a folder that goes with the new state."""
    how = check_workers(workers)
    passing = TemporaryDirectory(prefix="evergraph-", ignore_cleanup_errors=True)
    path = Path(passing.name, "state")
    save_state(path, replace(state, saved=None))
    note_change(path, lambda _: change, given={}, workers=how["workers"])
    launch(("resume", str(path), "--device", device), **how, quiet=True)
    found = replace(load_state(path)[0], saved=state.saved)
    found.computed["folder"] = passing
    return found


def _try_first(
    store: Store, make_change: Callable[[State], Change], given: Mapping[str, Any]
) -> None:
    """Refuses what is wrong with the first change before anything is created."""
    if store.is_empty:
        fresh = State.initial(make_config(given))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it is read again
            prepare(fresh, make_change(fresh))


def _note(
    store: Store, make_change: Callable[[State], Change], given: Mapping[str, Any]
) -> tuple[State, int, Change, Prepared, Stored]:
    """Puts a change on disk before it is learned; returns it, and the state that it is made to."""
    new, path = store.is_empty, store.folder
    if new:
        state, number = State.initial(make_config(given)), 0
    else:
        state, number = load_state(path)
        store.check_settled()
        check_given(state.config, given, path)
    change = make_change(state)
    prepared = prepare(state, change)
    stored = store.commit(number, state_content(state) if new else None, change_content(change))
    before = state.saved[2] if state.saved is not None else stored
    return state, number, change, prepared, before


def resume(
    path: Path,
    *,
    device: torch.device,
    discard: bool = False,
    on_event: OnEvent | None = None,
    team: Team = ALONE,
) -> tuple[State, str]:
    """Finishes what was interrupted; returns the state and a sentence about what was done.

    A damaged current version is left for the newest whole one. Workers of a team share the
    learning; the first one alone writes, and knows the outcome.

    Args:
        path: The state's folder.
        device: Where to learn.
        discard: Whether to forget an unfinished change instead of learning it.
        on_event: Called with what happens during training.
        team: The workers.
    """
    store = Store(path)
    store.check_there()
    if not team.leads:
        number = team.tell(None)
        state, _ = load_state(path, number)
        if number is not None:
            _take_up(store, state, device, on_event, team)
        return state, ""
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
        team.tell(number if had else None)
        if not had:
            return state, f"{told}Nothing was unfinished: version {number} is whole."
        state = _take_up(store, state, device, on_event, team)
        store.commit(number + 1, state_content(state), before=state.saved and state.saved[2])
        (path / DESCENT).unlink(missing_ok=True)
        return state, f"{told}The unfinished change is learned: version {number + 1}."


def _take_up(
    store: Store, state: State, device: torch.device, on_event: OnEvent | None, team: Team
) -> State:
    """Learns the change that is on disk, together with the other workers if there are some."""
    change = _read_pending(store)
    keeper = None if team.size == 1 else Keeper(store.folder / DESCENT)
    return complete(
        state, change, prepare(state, change), device, on_event, team=team, keeper=keeper
    )


def _read_pending(store: Store) -> Change:
    try:
        return restore_change(store.read(table="pending")[1])
    except Exception:  # whatever foreign bytes bring about
        raise InputError(
            f"Expected a whole unfinished change in '{store.folder}' (it is damaged); run "
            f"'evergraph resume {store.folder} --discard' and give the change again."
        ) from None


def check_given(there: EstimatorConfig, given: Mapping[str, Any], path: Path) -> None:
    """Refuses parameters that differ from those a state has.

    Only what is given is compared, with what is stored: defaults of a later release do not matter.
    """
    settings = dict(given.get("settings") or {})
    if given.get("buffer_size") is not None:
        settings["buffer_size"] = given["buffer_size"]
    known = there.parameters.model_dump(exclude={"settings", "buffer_size"})
    odd = [key for key, value in known.items() if given.get(key) not in {None, value}]
    if "method" not in odd:
        method = parse(method_class(there.method).Config, there.settings)
        parts = (there.model, there.training, method)
        owners = {key: part for part in parts for key in type(part).model_fields}
        for key, value in settings.items():
            if key not in owners:
                raise unknown_name(f"setting of method '{there.method}'", key, owners)
            before = owners[key]
            after = parse(type(before), {**before.model_dump(), key: value})
            odd += [key] if getattr(after, key) != getattr(before, key) else []
    if odd:
        raise InputError(
            f"Expected the settings that '{path}' began with (got another {', '.join(odd)}); leave "
            "it out or begin another state."
        )

"""The words of the command: its help in groups, and a sentence for each kind of mistake."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from evergraph.errors import InputError, unknown_name
from evergraph.lab.cli import GROUPS, OPTIONS


class Command(typer.core.TyperCommand):
    """Lists the options of a command under titles."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options of its own first, then those that commands share."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            panel = OPTIONS.get(getattr(param, "rich_help_panel", None) or "", "Options")
            if row is not None:
                title = "Arguments" if param.param_type_name == "argument" else panel
                sections.setdefault(title, []).append(row)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(typer.core.TyperGroup):
    """Lists the commands under the title of their group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section per group."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                rows = [(name, str(self.commands[name].help)) for name in names]
                formatter.write_dl(rows, col_max=12)


def usage_sentence(error: Any) -> str:
    """Says what is wrong with the words of a command, and what to write instead."""
    kind, ctx = type(error).__name__, error.ctx
    named = [word for word in sys.argv[1:2] if not word.startswith("-")]
    path = ctx.command_path if ctx is not None else " ".join(["evergraph", *named])
    remedy = f"see '{path} --help'"
    message = " ".join(error.format_message().split()).rstrip(".")
    words = sys.argv[1:]
    if kind == "NoSuchOption":
        return _unknown_option(error.option_name, ctx, remedy)
    if kind == "MissingParameter":
        name = max(error.param.opts, key=len) if error.param is not None else ""
        return f"Expected '{name}' (got none); add it, {remedy}."
    if match := re.match(r"No such command '(.*?)'", message):
        close = get_close_matches(match[1].lower(), list(ctx.command.commands), n=1)
        return f"Unknown command '{match[1]}': " + (
            f"did you mean '{close[0]}'?" if close else f"{remedy}."
        )
    if match := re.match(r"Got unexpected extra argument(?:\(s\)|s)? \((.*)\)", message):
        return _extra_words(match[1], ctx, remedy)
    option = re.search(r"'(--?[a-z-]+)'", message)
    if "requires an argument" in message and option:
        return f"Expected a value after '{option[1]}' (got none); add it, {remedy}."
    if option and option[1] in words[:-1]:
        message = _with_value(message, words[words.index(option[1]) + 1])
    given = [word for word in words if option and word.startswith(f"{option[1]}=")]
    if given:
        message = _with_value(message, given[0].partition("=")[2])
    return f"{message}; {remedy}."


def _with_value(message: str, value: str) -> str:
    """Adds what was given to a sentence about an option, where Typer leaves it out."""
    message = re.sub(r"Input should be (a valid \w+)(, .*)?", r"expected \1", message)
    return message if f"'{value}'" in message else f"{message} (got '{value}')"


def _unknown_option(name: str, ctx: Any, remedy: str) -> str:
    """Suggests the nearest option, or the long form of one that was written with one dash."""
    known = [word for param in ctx.command.params for word in param.opts if word[:2] == "--"]
    shown = name  # of words behind one dash the first letter alone is named
    if not name.startswith("--"):
        written = next((word for word in sys.argv[1:] if word.startswith(name)), name)
        shown = written.partition("=")[0]
    word = shown.lstrip("-").replace("_", "-").lower()
    names = [option[2:] for option in known]
    close = [name for name in names if len(word) > 1 and name.startswith(word)]
    close = close or get_close_matches(word, names, n=1, cutoff=0.7)
    return f"Unknown option '{shown}': " + (
        f"did you mean '--{close[0]}'?" if close else f"{remedy}."
    )


def _extra_words(given: str, ctx: Any, remedy: str) -> str:
    """Tells where words belong that stand alone: behind an option, or in quotes."""
    first = given.split(maxsplit=1)[0]
    options = {word for param in ctx.command.params for word in param.opts}
    hint = remedy
    words = sys.argv[1:]
    before = words[words.index(first) - 2 : words.index(first)] if first in words[2:] else []
    if before and before[0] == "--set" and "=" not in before[1]:
        hint = f"write --set {before[1]}={first}"
    elif "--dataset" in options:
        from evergraph.methods import METHODS  # noqa: PLC0415 - loaded by the command already

        hint = f"write --{'method' if first.partition(':')[0] in METHODS else 'dataset'} {first}"
    return f"Expected no word '{given}' by itself after '{ctx.command_path}'; {hint}."


@dataclass(frozen=True)
class Workers:
    """What shares one job; its fields are options of commands."""

    workers: Annotated[int, "Workers that share the job, each a process."] = 1
    engine: Annotated[str, "Where they run: local or ray."] = "local"
    address: Annotated[str | None, "Address of a Ray cluster. [started on this machine]"] = None
    gpus_per_worker: Annotated[float, "GPUs that each worker requests on a Ray cluster."] = 0.0

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"Expected '--workers' of at least 1 (got {self.workers}); raise it.")
        if self.engine not in {"local", "ray"}:
            raise unknown_name("engine", self.engine, {"local", "ray"})
        if self.engine == "local" and (self.address is not None or self.gpus_per_worker):
            option = "--address" if self.address is not None else "--gpus-per-worker"
            raise InputError(
                f"Expected '{option}' only with a Ray cluster (got '--engine local'); add "
                "--engine ray."
            )

    @property
    def are_wanted(self) -> bool:
        """Whether workers have to be started: not where this process is one of them."""
        several = self.workers > 1 or self.engine == "ray"
        return several and "WORLD_SIZE" not in os.environ

    @property
    def leads(self) -> bool:
        """Whether this process speaks and writes for all."""
        return os.environ.get("RANK", "0") == "0"

    def launch(self, *words: str, quiet: bool = False) -> None:
        """Runs words in all workers, those of this command by default."""
        from evergraph.launch import launch  # noqa: PLC0415 - one worker needs none of it

        launch(words or sys.argv[1:], **vars(self), quiet=quiet)

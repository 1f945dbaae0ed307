"""The command ``evergraph``: thin, it parses words, calls the library and prints."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from evergraph.errors import InputError
from evergraph.lab.cli.grids import compare
from evergraph.lab.cli.listings import datasets, methods
from evergraph.lab.cli.reports import report
from evergraph.lab.cli.reproduce import experiments, reproduce
from evergraph.lab.cli.runs import resume, run
from evergraph.lab.cli.states import convert, inspect, learn, predict
from evergraph.lab.cli.tuning import tune

app = typer.Typer(
    name="evergraph",
    help="Keep a graph neural network up to date as its graph grows, without forgetting.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS = (
    *(run, compare, tune, resume),
    *(report, experiments, reproduce),
    *(learn, predict, inspect, convert),
    *(datasets, methods),
)
for command in COMMANDS:
    app.command()(command)

# Typer's base of all wrong-usage errors, wherever its release keeps it.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


def main() -> None:
    """Runs the command: exit code 2 and one sentence for bad input, 130 and 143 for signals."""
    try:
        with signals_raised():
            code = app(standalone_mode=False)
    except InputError as error:
        sys.exit(fail(str(error), 2))
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            sys.exit(2)
        message = " ".join(getattr(error, "format_message", error.__str__)().split())
        sys.exit(fail(f"{with_value(message.rstrip('.'))}; try 'evergraph --help'.", 2))
    except (KeyboardInterrupt, typer.Abort):
        code = 130  # some releases of Typer return this code instead of raising
    except Terminated:
        code = 143
    if code in {130, 143}:
        fail(f"Interrupted: what was finished is kept; {continuation()}.", code)
    sys.exit(code if isinstance(code, int) else 0)


def continuation() -> str:
    """Says how to continue what was interrupted."""
    words = sys.argv[1:]
    if words[:1] == ["learn"] and len(words) > 1:
        return f"'evergraph resume {words[1]}' finishes the change if it was begun"
    return "the same command continues"


def with_value(message: str) -> str:
    """Adds what was given to a sentence about an option, where Typer leaves it out."""
    option = re.search(r"'(--[a-z-]+)'", message)
    if option and option[1] in sys.argv[:-1]:
        value = sys.argv[sys.argv.index(option[1]) + 1]
        return message if f"'{value}'" in message else f"{message} (got '{value}')"
    return message


def fail(sentence: str, code: int) -> int:
    """Prints one sentence to standard error and returns the exit code."""
    print(f"evergraph: {sentence}", file=sys.stderr)
    return code


class Terminated(BaseException):
    """The process was asked to end."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C.

    Python takes note of a plain ``KeyboardInterrupt`` that passes through ``exec``, which libraries
    use, and kills ``python -m evergraph`` at its end although it was caught. It lets others pass.
    """


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raises where SIGTERM or Ctrl-C arrives; signals reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _terminate)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        before[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted

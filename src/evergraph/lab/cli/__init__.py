"""The command ``evergraph``: thin, it parses words, calls the library and prints.

Nothing but the standard library is imported before it is known which command runs, so that help
comes at once and Ctrl-C is understood from the beginning.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import fields, is_dataclass
from importlib import import_module, resources
from inspect import Parameter, Signature, signature
from types import FrameType, ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from evergraph import __version__
from evergraph.errors import InputError

_WORDS = json.loads(resources.files(__name__).joinpath("commands.json").read_text("utf-8"))
#: Every command below the title of its group in the help: its module, its line there, an example.
GROUPS: dict[str, dict[str, dict[str, str]]] = _WORDS["groups"]
#: Titles of options that commands share, by the class that holds them.
OPTIONS: dict[str, str] = _WORDS["options"]
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
#: Name of the thread that imports a command.
LOADING = "loading"


def main() -> None:
    """Runs the command: exit code 2 and one sentence for bad input, 130 and 143 for signals."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    together: AbstractContextManager[None] = nullcontext()
    if "RANK" in os.environ:  # one of several that share a job
        from evergraph.launch import as_worker  # noqa: PLC0415 - see above

        together = as_worker()
    try:
        with together, signals_raised():
            code = app()
        sys.stdout.flush()
    except InputError as error:
        sys.exit(fail(str(error), 2))
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ENOSPC} or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes at its end
        code = 128 + 13  # a reader that has gone, as after ``| head``: SIGPIPE, without a word
        if error.errno == errno.ENOSPC:
            code = fail(f"Expected to write the output (got: {error.strerror}); free some.", 2)
    except Stopped as stop:
        if "RANK" in os.environ:
            os._exit(stop.code)  # who started the workers knows why
        told = "the same command continues"
        if sys.argv[1:2] == ["learn"] and len(sys.argv) > 2:
            told = f"'evergraph resume {sys.argv[2]}' finishes the change if it was begun"
        code = fail(f"Interrupted: what was finished is kept; {told}.", stop.code)
        if any(thread.name == LOADING for thread in threading.enumerate()):
            os._exit(code)  # libraries that are half loaded may crash when Python ends
    code = code if isinstance(code, int) else 0
    if "RANK" in os.environ:
        from evergraph.launch import end_worker  # noqa: PLC0415 - see above

        end_worker(code)
    sys.exit(code)


def app() -> Any:
    """Parses the words with Typer and calls the command; wrong words become one sentence."""
    import typer  # noqa: PLC0415 - see above

    def tell(asked: bool) -> None:
        if asked:
            print(f"evergraph {__version__}")
            raise typer.Exit

    from evergraph.lab.cli.words import Command, Group, usage_sentence  # noqa: PLC0415 - needs Typer

    usage_error: type[Exception] = typer.BadParameter.__mro__[2]  # wherever a release keeps it
    parser = typer.Typer(
        name="evergraph",
        cls=Group,
        help="Keep a graph neural network up to date as its graph grows, without forgetting.",
        epilog="Start with:\n\n\b\n  evergraph run\n  evergraph run -h",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @parser.callback()
    def root(
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", is_eager=True, callback=tell
        ),
    ) -> None:
        """Takes the options that come before a command."""

    wanted = next((word for word in typed() if not word.startswith("-")), "")
    for name, about in COMMANDS.items():  # others stand in the help alone
        if name == wanted:
            command = flatten(getattr(load(f"{__name__}.{about['module']}"), name))
            epilog = f"Example:\n\n\b\n  evergraph {about['example']}"
            parser.command(name, cls=Command, epilog=epilog)(command)
        else:
            parser.command(name, help=about["help"])(fail)
    try:
        return parser(standalone_mode=False, prog_name="evergraph")
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            return 2
        raise InputError(usage_sentence(error)) from None


def typed() -> list[str]:
    """Returns the words behind the command's name, those being completed by a shell too."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS")
    if line is None or "_EVERGRAPH_COMPLETE" not in os.environ:
        return sys.argv[1:]
    return line.split()[1:]


def flatten(command: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an option of each parameter, and of each field where one is a dataclass.

    What a parameter is annotated with in words is the help of its option.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    words: list[Parameter] = []
    for word in signature(command).parameters.values():
        if word.name not in groups:
            words.append(_option(word.name, hints[word.name], word.default))
            continue
        group = groups[word.name]
        inner = get_type_hints(group, include_extras=True)
        for f in fields(group):
            owner = next(cls for cls in group.__mro__ if f.name in cls.__annotations__)
            words.append(_option(f.name, inner[f.name], f.default, owner.__name__))

    def call(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        return command(**given)

    call.__doc__ = command.__doc__
    call.__annotations__ = {word.name: word.annotation for word in words}
    call.__signature__ = Signature(words)  # type: ignore[attr-defined]
    return call


def _option(name: str, hint: Any, default: Any, group: str | None = None) -> Parameter:
    import typer  # noqa: PLC0415 - see above

    kind, what = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, None)
    if isinstance(what, str):
        flags = [f"--{name.replace('_', '-')}"] if kind is bool else []  # without its opposite
        what = typer.Option(*flags, help=what)
    if isinstance(what, typer.models.OptionInfo):
        what = copy(what)  # it may be shared
        what.rich_help_panel = group
        what.metavar = what.metavar or (None if kind is bool else _metavar(kind))
    hint = kind if what is None else Annotated[kind, what]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _metavar(kind: Any) -> str:
    """Says what an option takes, for people."""
    inner = [part for part in get_args(kind) if part is not type(None)]
    if inner:
        return _metavar(inner[0])
    named = str(kind.__name__)
    return {"int": "N", "float": "X", "str": "TEXT"}.get(named, named.upper())


def load(name: str) -> ModuleType:
    """Imports a module in a thread, while the main thread goes on answering Ctrl-C.

    Loading the machine code of a library takes long and would not be interrupted.
    """

    def work() -> None:
        with suppress(BaseException):  # it fails again below
            import_module(name)

    thread = threading.Thread(target=work, name=LOADING, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)  # without a limit no signal would end it on Windows
    return import_module(name)


def fail(sentence: str, code: int) -> int:
    """Prints one sentence to standard error and returns the exit code."""
    print(f"evergraph: {sentence}", file=sys.stderr)
    return code


class Stopped(BaseException):
    """The process was asked to end, by SIGTERM or Ctrl-C.

    It is no ``KeyboardInterrupt``: Python takes note of one that passes through ``exec``, which
    libraries use, and kills ``python -m evergraph`` at its end although it was caught.
    """

    def __init__(self, number: int) -> None:
        self.code = 128 + number  # as shells have it: 130 and 143


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raises where SIGTERM or Ctrl-C arrives; signals reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

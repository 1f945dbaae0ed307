"""Options that several commands share; the fields of a dataclass are options of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, key=value; repeat for more.", show_default=False),
]
MergeOption = Annotated[
    list[Path] | None, typer.Option(help="Take finished runs from this folder; repeat.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]

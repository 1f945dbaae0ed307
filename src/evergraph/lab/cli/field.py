"""``evergraph field``: the table of the field, and how a row comes into it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from evergraph.errors import InputError
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.field import add_rows, field_data, field_sheet, read_field, read_rows
from evergraph.lab.folder import check_output
from evergraph.lab.page.render import FIELD_SCRIPTS, write_page
from evergraph.lab.tables import show


def field(
    folder: Annotated[Path, "Folder with the rows, one file each."] = Path("docs/results/field"),
    add: Annotated[list[Path] | None, "A row's JSON file, or a folder of runs; repeatable."] = None,
    replace: Annotated[bool, "Let new rows replace those of the same name."] = False,
    page: Annotated[Path | None, "Write an HTML page that can be sorted and filtered."] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the table of all methods, or add rows to it, which are checked first."""
    check_output(folder, "--folder")
    rows = [row for source in add or [] for row in read_rows(source)]
    written = add_rows(folder, rows, replace=replace)
    found = read_field(folder)
    if not found:
        raise InputError(
            f"Expected rows in '{folder}' (got none); add some with --add, or check the path."
        )
    data = field_data(found.values())
    if page is not None:
        write_page(data, page, FIELD_SCRIPTS)
    told = [*map(str, written), *([str(page)] if page is not None else [])]
    show(data, [field_sheet(data)], as_json, *told)

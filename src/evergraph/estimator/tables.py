"""Tables: CSV and Parquet files of nodes, edges and labels, from anyone, checked before use.

Rows in errors are counted from 1, a header not included. pyarrow reads and writes (the extra
``tables``); what a file declares is compared with its size before anything is allocated.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.errors import InputError
from evergraph.files import read_regular, unwritable, write_atomic

if TYPE_CHECKING:
    from evergraph.estimator.graph import Id

#: A wider table is a mistake, or an attempt to exhaust the memory by a long header.
MAX_COLUMNS = 20_000
#: Rows and cells that a Parquet file may declare, beside a multiple of its size.
FREE_ROWS, ROWS_PER_BYTE = 100_000, 16
FREE_CELLS, CELLS_PER_BYTE = 4_000_000, 200
FREE_BYTES = 64_000_000
#: What spreadsheets run, perhaps with apostrophes before it, and numbers that look like it.
_FORMULA, _NUMBER = re.compile(r"'*[=+\-@\t\r]"), re.compile(r"-[0-9]+")
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Table:
    """A file's columns by name, as pyarrow's arrays."""

    path: Path
    columns: dict[str, Any]
    num_rows: int

    def texts(self, name: str, *, gaps: bool = False) -> list[str | None]:
        """Returns a column as text; missing entries are None, or an error unless ``gaps``."""
        from evergraph.estimator.inputs import check_names  # noqa: PLC0415 - writing needs no PyTorch

        column, types = self._column(name), _arrow().types
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if not (types.is_integer(kind) or _is_text(kind) or types.is_null(kind)):
            raise InputError(
                f"Expected column '{name}' of '{self.path}' as text or whole numbers (got {kind}); "
                "convert it."
            )
        values = [_text(value) for value in _values(column)]
        if self.path.suffix.lower() == ".csv":  # see write_table
            values = [v[1:] if v and v[0] == "'" and _FORMULA.match(v) else v for v in values]
        if None in values and not gaps:
            raise self.wrong(name, values.index(None) + 1, "a value", "none")
        check_names(((row, v) for row, v in enumerate(values, 1) if v is not None), self._of(name))
        return values

    def ids(self, name: str = "id", *, unique: bool = True) -> list[Id]:
        """Returns a column of names of nodes, each once if ``unique``."""
        from evergraph.estimator.inputs import unique_ids  # noqa: PLC0415 - as above

        values = self.texts(name)
        return list(unique_ids(values, self._of(name)) if unique else map(str, values))

    def numbers(self, names: Sequence[str]) -> Array:
        """Returns columns as one matrix, ``[n, d]`` float32; every entry must be finite."""
        out = np.empty((self.num_rows, len(names)), dtype=np.float32)
        for at, name in enumerate(names):
            column = self._column(name)
            try:
                values = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
            except _arrow().ArrowException:
                raise self._no_number(name, column) from None
            with np.errstate(over="ignore"):
                out[:, at] = values
            if not np.isfinite(out[:, at]).all():
                row = int(np.argmin(np.isfinite(out[:, at])))
                got = "none" if np.isnan(values[row]) else f"{values[row]}"
                raise self.wrong(name, row + 1, "a finite number", got)
        return out

    def wrong(self, name: str, row: int, expected: str, got: str) -> InputError:
        """Builds the error for one entry."""
        return InputError(
            f"Expected {expected} in column '{name}' of '{self.path}' (got {got} in row {row}); "
            "correct the row."
        )

    def _of(self, name: str) -> str:
        return f"{name}' of '{self.path}"

    def _column(self, name: str) -> Any:
        if name not in self.columns:
            there = ", ".join(list(self.columns)[:8]) or "none"
            raise InputError(
                f"Expected a column '{name}' in '{self.path}' (got {there}); rename or add it."
            )
        return self.columns[name]

    def _no_number(self, name: str, column: Any) -> InputError:
        """Finds the first entry that is no number."""
        for row, value in enumerate(_values(column), 1):
            try:
                float(value)
            except (TypeError, ValueError):
                got = "none" if value in {None, ""} else repr(str(value)[:40])
                return self.wrong(name, row, "a number", got)
        return InputError(
            f"Expected column '{name}' of '{self.path}' to hold numbers (got {column.type}); "
            "convert it."
        )


def read_table(path: Path) -> Table:
    """Reads a ``.csv`` or ``.parquet`` file; ``.txt`` is a list of ids, one per line."""
    suffix = path.suffix.lower()
    if suffix not in {".csv", ".parquet", ".txt"}:
        raise InputError(
            f"Expected a .csv, .parquet or .txt file (got '{path}'); convert or rename it."
        )
    try:
        content = read_regular(path)
    except OSError as error:
        raise InputError(
            f"Expected to read '{path}' (got: {error.strerror}); check the path."
        ) from None
    return parse_table(path, content)


def parse_table(path: Path, content: bytes, most_cells: int | None = None) -> Table:
    """Reads what is in a file; a table that declares more than ``most_cells`` is refused."""
    suffix = path.suffix.lower()
    _arrow()  # says so if it is not there
    if suffix == ".txt":
        return _read_lines(path, content)
    try:
        found = _read_csv(content) if suffix == ".csv" else _read_parquet(content, most_cells)
        found.validate(full=True)  # text that is none, and words that are not in a dictionary
        names = found.column_names
        columns = {name: found.column(at).combine_chunks() for at, name in enumerate(names)}
    except InputError as error:
        raise InputError(f"In '{path}': {error}") from None
    except Exception as error:  # pyarrow raises many kinds on damaged bytes
        raise InputError(
            f"Expected '{path}' to be a {suffix[1:]} file (got: {_brief(error)}); correct it or "
            "write it again."
        ) from None
    if len(columns) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"Expected columns of '{path}' with different names (got '{twice}' twice); rename one."
        )
    return Table(path, columns, found.num_rows)


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Writes columns as CSV or Parquet, by the name of the file, in one step."""
    check_table_name(path)
    if path.suffix.lower() == ".csv":
        content = as_csv(columns).encode()
    else:
        arrow = _arrow()
        from pyarrow import parquet  # noqa: PLC0415 - an extra

        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.table(columns), sink)
        content = sink.getvalue().to_pybytes()
    try:
        write_atomic(path, content)
    except OSError as error:  # a file in place of a folder
        raise unwritable(path, error) from None


def check_table_name(path: Path) -> None:
    """Refuses the name of a file whose format is not written, before anything is computed."""
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise InputError(f"Expected a .csv or .parquet file to write (got '{path}'); rename it.")


def as_csv(columns: dict[str, Any]) -> str:
    """Writes columns as CSV, without pyarrow, which imports pandas to write.

    An apostrophe goes before text that a spreadsheet would take for a formula; :func:`read_table`
    takes it away again.
    """

    def guarded(value: Any) -> Any:
        odd = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
        return f"'{value}" if odd else value

    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*(map(guarded, values) for values in columns.values()), strict=True))
    return text.getvalue()


def _read_lines(path: Path, content: bytes) -> Table:
    from evergraph.estimator.inputs import MAX_ID_LENGTH  # noqa: PLC0415 - as above

    try:
        text = content.decode().rstrip()
    except UnicodeDecodeError:
        raise InputError(f"Expected '{path}' as UTF-8 text (it is not); convert it.") from None
    ids = [line.strip() for line in text.split("\n")] if text else []
    for row, name in enumerate(ids, 1):
        if not 0 < len(name) <= MAX_ID_LENGTH:
            got = f"{len(name)} characters" if name else "nothing"
            raise InputError(
                f"Expected one id per line in '{path}' (got {got} in row {row}); correct the row."
            )
    return Table(path, {"id": _arrow().array(ids, type=_arrow().string())}, len(ids))


def _read_csv(content: bytes) -> Any:
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - an extra

    if not content.strip():
        raise InputError("Expected a line of column names (got an empty file); write it again.")
    header = content[:1_000_000].split(b"\n", 1)[0]
    if header.count(b",") >= MAX_COLUMNS:
        raise InputError(
            f"Expected at most {MAX_COLUMNS} columns (got {header.count(b',') + 1}); use Parquet "
            "with fewer, or the library with sparse features."
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("Expected UTF-8 text (got UTF-16); save it as UTF-8.")
    for mark, name in ((b";", "semicolons"), (b"\t", "tabs")):
        if mark in header and b"," not in header:
            raise InputError(f"Expected columns separated by commas (got {name}); convert it.")
    text = _arrow().string()
    return arrow_csv.read_csv(
        _arrow().BufferReader(content),
        read_options=arrow_csv.ReadOptions(use_threads=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(("id", "label", "source", "target"), text),
            strings_can_be_null=False,
        ),
    )


def _read_parquet(content: bytes, most_cells: int | None = None) -> Any:
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    arrow = _arrow()
    schema = parquet.read_schema(arrow.BufferReader(content))
    if len(schema) > MAX_COLUMNS:
        raise InputError(f"Expected at most {MAX_COLUMNS} columns (got {len(schema)}); drop some.")
    for field in schema:
        if arrow.types.is_nested(field.type):
            raise InputError(
                f"Expected plain columns (got '{field.name}' of {field.type}); spread it over "
                "columns."
            )
    # Repeated text stays one text: as many copies as there are rows could fill the memory.
    texts = [field.name for field in schema if _is_text(field.type)]
    file = parquet.ParquetFile(arrow.BufferReader(content), read_dictionary=texts, pre_buffer=False)
    about = file.metadata
    cells = about.num_rows * max(about.num_columns, 1)
    rows = max(FREE_ROWS, ROWS_PER_BYTE * len(content))
    if not 0 <= about.num_rows <= rows or cells > FREE_CELLS + CELLS_PER_BYTE * len(content):
        raise InputError(
            f"Expected rows that {len(content)} bytes can hold (got {about.num_rows} of "
            f"{about.num_columns} columns declared); the file is damaged."
        )
    # Not by column: pyarrow ends the process on some that are damaged.
    unpacked = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
    if most_cells is not None and max(cells, unpacked // 8) > most_cells:
        raise InputError(
            f"Expected at most {most_cells} cells, of 8 bytes each (got {cells} in {unpacked} "
            "bytes); split it."
        )
    if unpacked > FREE_BYTES + CELLS_PER_BYTE * len(content):
        raise InputError(
            f"Expected at most {CELLS_PER_BYTE} times the size of the file when unpacked (got "
            f"{unpacked} bytes); store it without such compression."
        )
    return file.read(use_threads=False)


def _values(column: Any) -> list[Any]:
    """Returns a column as Python values; equal texts of a dictionary are one object."""
    if not _arrow().types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    words = column.dictionary.to_pylist()
    return [None if at is None else words[at] for at in column.indices.to_pylist()]


def _text(value: Any) -> str | None:
    """Reads one entry as text; nothing is left of an empty one."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return None if value is None or value == "" else str(value)


def _is_text(kind: Any) -> bool:
    inner = kind.value_type if _arrow().types.is_dictionary(kind) else kind
    return str(inner) in {"string", "large_string", "binary", "large_binary"}


def _arrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(
            "Expected pyarrow to read and write tables (got none); install evergraph[tables]."
        ) from None
    return pyarrow


def _brief(error: Exception) -> str:
    """Keeps the first line of a message; pyarrow counts the header as a row, we do not."""
    text = " ".join(str(error).split())[:160] or type(error).__name__
    return re.sub(r"Row #(\d+)", lambda found: f"row {int(found[1]) - 1}", text).rstrip(".")

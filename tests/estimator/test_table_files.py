"""Tables: CSV, Parquet and lists, with the row named when something is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.errors import InputError
from evergraph.estimator.tables import read_table, write_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def csv(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def parquet(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "t.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_csv_and_parquet_read_alike(tmp_path: Path):
    columns = {"id": ["007", "b"], "f": [1.5, 2.0], "g": [1, 0], "label": ["x", None]}
    first = read_table(csv(tmp_path, "id,f,g,label\n007,1.5,1,x\nb,2,0,\n"))
    for table in (first, read_table(parquet(tmp_path, columns))):
        assert table.ids() == ["007", "b"]  # text, though it looks like a number
        assert table.numbers(["g", "f"]).tolist() == [[1.0, 1.5], [0.0, 2.0]]
        assert table.texts("label", gaps=True) == ["x", None]
        assert table.num_rows == 2


def test_parquet_reads_numbers_as_ids_and_dictionaries_as_text(tmp_path: Path):
    words = pa.array(["u", "v", "u"]).dictionary_encode()
    columns = {"id": [3, 1, 2], "label": words, "b": [True, False, True]}
    table = read_table(parquet(tmp_path, columns))
    assert table.ids() == ["3", "1", "2"]
    assert table.texts("label") == ["u", "v", "u"]
    assert table.numbers(["b"]).tolist() == [[1.0], [0.0], [1.0]]


def test_lists_of_ids_are_lines(tmp_path: Path):
    assert read_table(csv(tmp_path, "a\r\nb \nc\n\n", "ids.txt")).ids() == ["a", "b", "c"]


def check(reader: Callable[[], object], *words: str) -> None:
    with pytest.raises(InputError) as caught:
        reader()
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


CSV = "id,f,g\na,1,2\nb,3,4\nc,5,6\n"


def test_errors_name_column_and_row(tmp_path: Path):
    def numbers(text: str) -> Callable[[], object]:
        return lambda: read_table(csv(tmp_path, text)).numbers(["f", "g"])

    check(numbers(CSV.replace("3", "three")), "a number", "'f'", "'three' in row 2")
    check(numbers(CSV.replace("6", "")), "a finite number", "'g'", "none in row 3")
    check(numbers(CSV.replace("6", "inf")), "a finite number", "'g'", "inf in row 3")
    check(numbers(CSV.replace("b,3,4", "b,3")), "row 2", "Expected 3 columns")
    check(lambda: read_table(csv(tmp_path, CSV.replace("c", ""))).ids(), "'id'", "none in row 3")
    check(lambda: read_table(csv(tmp_path, CSV.replace("c,", "a,"))).ids(), "'a' again in row 3")
    check(lambda: read_table(csv(tmp_path, CSV)).ids("source"), "'source'", "id, f, g")
    check(lambda: read_table(csv(tmp_path, CSV.replace("g", "f"))), "'f' twice")
    check(lambda: read_table(csv(tmp_path, "")), "t.csv")
    check(lambda: read_table(csv(tmp_path, b"id\n\xff\xfe\n")), "t.csv")
    check(lambda: read_table(csv(tmp_path, "a\n\nb\n", "i.txt")), "nothing in row 2")
    check(lambda: read_table(csv(tmp_path, "a\n" + "b" * 70000, "i.txt")), "70000 characters")
    check(lambda: read_table(tmp_path / "none.csv"), "none.csv", "No such file")
    check(lambda: read_table(tmp_path / "t.xlsx"), ".parquet")
    check(lambda: read_table(csv(tmp_path, "id,f\n" + "x" * 5000 + ",1\n")).ids(), "4096", "row 1")
    check(lambda: read_table(csv(tmp_path, "id" + ",a" * 20_000 + "\n")), "20000 columns")


def test_parquet_types_are_checked(tmp_path: Path):
    def path(values: Any) -> Path:
        return parquet(tmp_path, {"id": ["a", "b"], "f": values})

    check(lambda: read_table(path([[1.0], [2.0]])), "'f' of list")
    check(lambda: read_table(path(["1", "x"])).numbers(["f"]), "'x' in row 2")
    check(lambda: read_table(path([1.0, None])).numbers(["f"]), "none in row 2")
    check(lambda: read_table(path([0.5, 1.5])).ids("f"), "'f'", "double")
    check(lambda: read_table(csv(tmp_path, b"PAR1 nonsense PAR1", "t.parquet")), "parquet file")


def test_parquet_that_declares_more_than_it_holds_is_refused(tmp_path: Path):
    # A million equal rows in a few bytes: what they would take is not in the file.
    path = parquet(tmp_path, {"id": pa.array(np.zeros(4_000_000, dtype=np.int8))})
    assert path.stat().st_size < 100_000
    check(lambda: read_table(path), "rows that", "4000000")


def test_parquet_that_unpacks_to_far_more_than_it_holds_is_refused(tmp_path: Path):
    path = parquet(tmp_path, {"id": ["w" * 100_000_000]}, compression="zstd")
    assert path.stat().st_size < 100_000
    check(lambda: read_table(path), "when unpacked")


def test_long_repeated_text_is_not_copied(tmp_path: Path):
    word = "w" * 3000
    path = parquet(tmp_path, {"id": list(map(str, range(50_000))), "label": [word] * 50_000})
    found = read_table(path).texts("label")  # 150 MB if every row had its own
    assert len({id(item) for item in found}) == 1


def test_written_tables_read_back(tmp_path: Path):
    columns = {"id": ["a", "b"], "label": ["u", "v"], "probability": [0.25, 0.75]}
    for name in ("p.csv", "p.parquet"):
        write_table(tmp_path / name, columns)
        table = read_table(tmp_path / name)
        assert table.ids() == ["a", "b"]
        assert table.numbers(["probability"]).tolist() == [[0.25], [0.75]]
    check(lambda: write_table(tmp_path / "p.json", columns), "p.json")


def test_formulas_are_written_as_text_and_read_back(tmp_path: Path):
    ids = ["=1+1", "+x", "-x", "@me", "'=y", "''", "'z", "-3", "\tq", "plain"]
    for name in ("p.CSV", "p.parquet"):
        write_table(tmp_path / name, {"id": ids})
        assert read_table(tmp_path / name).ids() == ids
    lines = (tmp_path / "p.CSV").read_text().splitlines()
    assert [line.strip('"')[0] for line in lines[1:]] == ["'"] * 7 + ["-", "'", "p"]


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path):
    table = read_table(csv(tmp_path, "id,f,label\n"))
    assert table.ids() == []
    assert table.numbers(["f"]).shape == (0, 1)
    assert table.texts("label", gaps=True) == []


def test_a_file_below_a_file_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").touch()
    check(lambda: write_table(tmp_path / "file" / "p.csv", {"id": ["a"]}), "p.csv", "Expected to")


def test_without_pyarrow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check(lambda: read_table(csv(tmp_path, CSV)), "evergraph[tables]")

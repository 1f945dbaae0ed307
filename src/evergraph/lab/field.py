"""The table of the field: a file per row, which anyone can send, checked before it is believed.

A row is a method with its settings on one graph under one stream, measured over seeds. Its file
holds the configuration, so that the row can be run again, and the hashes that follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evergraph import __version__
from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError, one_line
from evergraph.files import make_folder, read_json, write_json
from evergraph.lab.folder import finished_runs, slug
from evergraph.lab.paper.experiments import FIELD_STREAMS
from evergraph.lab.summary import grouped, mean_std
from evergraph.lab.tables import METRICS, Sheet, claimed, number, size
from evergraph.methods import METHODS
from evergraph.stream.datasets import DATASETS
from evergraph.validation import Config, parse

#: The least seeds that a row says something with.
FEWEST = 3
#: The longest text and the largest file that a row may have.
LONGEST, LARGEST = 100, 100_000
#: What to do about a file that is no row.
REMEDY = "give a row's JSON file or a folder of finished runs"
#: How far sums of rounded numbers may be off.
ROUNDING = 0.02
#: What every seed has, in the order of its columns.
BY_SEED = ("pm", "fm", "current", "seconds", "memory_bytes")

Percent = Annotated[float, Field(ge=0, le=100)]
Points = Annotated[float, Field(ge=-100, le=100)]
Whole = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=LONGEST)]


class Published(Config):
    """What a paper prints for the row, under whatever protocol it has."""

    pm: Percent | None = None
    fm: Points | None = None
    source: Text  # the paper and its table


class FieldRow(Config):
    """One row; of seeds and all that is measured by seed there are equally many."""

    schema_version: int = Field(default=1, ge=1, le=1)  # of this format
    config: dict[str, Any]  # of a run, as config.yaml has it, without a seed
    protocol_hash: Text  # equal hashes mean comparable numbers
    variant_hash: Text  # of the configuration
    version: Text  # of Evergraph
    seeds: tuple[Whole, ...]
    pm: tuple[Percent, ...]
    fm: tuple[Points | None, ...]
    current: tuple[Percent, ...]
    seconds: tuple[Annotated[float, Field(ge=0)], ...]
    memory_bytes: tuple[Whole, ...]
    published: Published | None = None

    @property
    def run(self) -> RunConfig:
        """The configuration, of seed 0."""
        return RunConfig.from_values({**self.config, "seed": 0})

    @property
    def place(self) -> tuple[str, str, str]:
        """Graph, stream and name; what the stream is stands in no name."""
        run = self.run
        name = re.sub(r"[:,]stream=[^,]+", "", run.label)
        return run.dataset_name, run.protocol.stream, name

    @property
    def file_name(self) -> str:
        """The name of its file: what a person looks for, and what tells it from all others."""
        return f"{slug(' '.join(self.place))}-{self.variant_hash}.json"


def check_row(content: Any, source: str) -> FieldRow:
    """Reads a row that may come from anyone; refuses it in one sentence."""
    try:
        if not isinstance(content, dict):
            raise InputError(f"Expected keys and values (got {type(content).__name__}); fix it.")
        row = parse(FieldRow, content)
        run = row.run
        _check_config(row, run)
        _check_values(row)
    except InputError as error:
        raise InputError(one_line(f"{source}: {error}")) from None
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise InputError(
            f"Expected the row of a table in '{source}' (got another content); write it with "
            "'evergraph field --add RUNS'."
        ) from None
    return row


def _check_config(row: FieldRow, run: RunConfig) -> None:
    """Refuses a configuration that is not of the field, or not what the hashes say."""
    if run.dataset not in DATASETS or run.dataset_options:
        raise InputError(
            f"Expected 'dataset' to be a graph that all have, such as cora (got "
            f"'{run.dataset_name}'); measure on one that 'evergraph datasets' lists."
        )
    if run.method not in METHODS:
        raise InputError(
            f"Expected 'method' among those of 'evergraph methods' (got '{run.method}'); a new "
            "method comes with its file."
        )
    if not run.label.isprintable() or not 0 < len(run.label) <= LONGEST:
        raise InputError(
            f"Expected 'label' of 1 to {LONGEST} printable characters (got "
            f"{one_line(repr(run.label))}); shorten it."
        )
    found = {"protocol_hash": run.protocol.hash, "variant_hash": run.variant_hash}
    for key, value in found.items():
        if getattr(row, key) != value:
            raise InputError(
                f"Expected '{key}' {value}, that of the configuration (got "
                f"'{getattr(row, key)}'); write the row anew from its runs."
            )
    known = known_protocols(run.dataset, run.method)
    if run.protocol.hash not in known:
        raise InputError(
            f"Expected 'protocol_hash' of {' or '.join(known.values())} on {run.dataset} (got "
            f"{run.protocol.hash}, another protocol); leave its settings as they are."
        )


def known_protocols(dataset: str, method: str) -> dict[str, str]:
    """Lists the protocols of the field for a graph: their hashes, and their streams."""
    graph = Variant.parse_dataset(dataset)
    usual = resolve(graph, Variant.parse(method), 0).protocol.stream
    streams = [one for one in FIELD_STREAMS if (one == "time") == (usual == "time")]
    found = [resolve(graph, Variant.parse(f"{method}:stream={one}"), 0) for one in streams]
    return {config.protocol.hash: config.protocol.stream for config in found}


def _check_values(row: FieldRow) -> None:
    """Refuses too few seeds, columns of other lengths, and numbers that contradict each other."""
    if len(set(row.seeds)) < max(FEWEST, len(row.seeds)):
        raise InputError(
            f"Expected 'seeds' to be at least {FEWEST} different ones (got {list(row.seeds)}); "
            "run more."
        )
    for key in BY_SEED:
        if (count := len(getattr(row, key))) != len(row.seeds):
            raise InputError(
                f"Expected '{key}' with a value per seed, {len(row.seeds)} (got {count}); write "
                "the row anew from its runs."
            )
    for seed, pm, fm, current in zip(row.seeds, row.pm, row.fm, row.current, strict=True):
        lost = current - pm  # (T − 1)/T of FM
        bounds = sorted((0.0, fm or 0.0))
        if not bounds[0] - ROUNDING <= lost <= bounds[1] + ROUNDING:
            raise InputError(
                f"Expected 'current' − 'pm' between 0 and 'fm' (got {lost:.2f} for seed {seed}, "
                f"FM {fm}); write the row anew from its runs."
            )


def rows_of_runs(folder: Path) -> list[FieldRow]:
    """Makes rows of the finished runs below a folder, checked as those of others are."""
    rows = []
    for variant, found in grouped(finished_runs(folder), lambda r: r.config.variant_hash).items():
        by_seed = {run.config.seed: run for run in found}
        runs = [by_seed[seed] for seed in sorted(by_seed)]
        config, results = runs[0].config, [run.results for run in runs]
        packages = [run.environment.get("packages", {}) for run in runs]
        content = {
            "schema_version": 1,
            "config": config.model_dump(mode="json", exclude={"seed"}),
            "protocol_hash": config.protocol.hash,
            "variant_hash": variant,
            "version": " and ".join(sorted({p.get("evergraph", __version__) for p in packages})),
            "seeds": sorted(by_seed),
            **{
                key: [r[key] if r[key] is None else round(r[key], 4) for r in results]
                for key in METRICS
            },
            "seconds": [round(one["seconds"]["total"], 3) for one in results],
            "memory_bytes": [one["memory_bytes"] for one in results],
        }
        if printed := claimed(results[0]):
            means = {key: claim["mean"] for key, claim in printed.items()}
            content["published"] = {**means, "source": "Choi et al. (DSLR), Tables 2 and 15"}
        rows.append(check_row(content, f"{folder} · {config.label}"))
    return rows


def read_rows(source: Path) -> list[FieldRow]:
    """Reads a row's file, or makes rows of a folder of runs."""
    if source.is_dir():
        rows = rows_of_runs(source)
        if rows:
            return rows
    elif source.exists() and source.stat().st_size <= LARGEST:
        return [check_row(read_json(source, REMEDY), str(source))]
    raise InputError(
        f"Expected a row's JSON file of at most {LARGEST} bytes or a folder of finished runs (got "
        f"'{source}'); check the path."
    )


def read_field(folder: Path) -> dict[str, FieldRow]:
    """Reads the rows of a field by the names of their files."""
    files = sorted(folder.glob("*.json"))
    return {path.name: check_row(read_json(path), str(path)) for path in files}


def add_rows(folder: Path, rows: Iterable[FieldRow], *, replace: bool = False) -> list[Path]:
    """Writes rows into a field, all or none; ``replace`` lets them take the place of others."""
    there = {row.place: name for name, row in read_field(folder).items()}
    new: dict[tuple[str, str, str], FieldRow] = {}
    for row in rows:
        taken = "another of these rows" if row.place in new else there.get(row.place)
        if taken is not None and (row.place in new or not replace):
            raise InputError(
                f"Expected a row that is not there yet (got {' · '.join(row.place)}, which "
                f"{taken} is); give it another label, or add --replace."
            )
        new[row.place] = row
    if new:
        make_folder(folder)
    for place, row in new.items():
        write_json(folder / row.file_name, row.model_dump(mode="json"))
        if there.get(place, row.file_name) != row.file_name:
            (folder / there[place]).unlink()
    return [folder / row.file_name for row in new.values()]


def field_data(rows: Iterable[FieldRow]) -> dict[str, Any]:
    """Describes a field for the page and the table, by graph, stream and PM."""
    found = []
    for row in rows:
        dataset, stream, name = row.place
        method = METHODS[row.run.method]
        entry: dict[str, Any] = {"dataset": dataset, "stream": stream, "name": name}
        entry |= {key: mean_std(getattr(row, key)) for key in ("pm", "fm", "current", "seconds")}
        entry |= {"seeds": len(row.seeds), "memory_bytes": max(row.memory_bytes)}
        entry |= {"year": method.year, "needs": ", ".join(sorted(method.needs)) or None}
        entry |= {"published": row.published.model_dump() if row.published else None}
        entry |= {"version": row.version, "variant_hash": row.variant_hash}
        found.append(entry)
    found.sort(key=lambda e: (e["dataset"], e["stream"], -e["pm"]["mean"], e["name"]))
    return {"title": "The table of the field", "version": __version__, "rows": found}


def field_sheet(data: dict[str, Any]) -> Sheet:
    """Shows the field as a table."""
    rows = [
        [
            *(f"{e['dataset']} · {e['stream']} · {e['name']}", e["seeds"], e["pm"], e["fm"]),
            *(size(e["memory_bytes"]), number(e["seconds"]["mean"], 1)),
            number((e["published"] or {}).get("pm")),
        ]
        for e in data["rows"]
    ]
    columns = ["graph · stream · method", "seeds", "PM ↑", "FM ↓", "kept", "s", "published PM"]
    return Sheet(f"{data['title']}: mean ± std over seeds, test nodes, %", columns, rows)

"""Packages: the graph of a Debian-style archive, release by release, from its index files.

Nodes are packages, in order of (first release, name). Edges lead from a package to those that it
names under :data:`RELATIONS`, from the first release on in which it does and both are there. The
class is the section that a package first had. Features are TF-IDF weights of the words of its
description, with vocabulary and weights from the first release alone: nothing of the future.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from evergraph.errors import InputError
from evergraph.stream.datasets.npz import Array, brief, smallest, write_arrays

RELATIONS = ("Depends", "Pre-Depends", "Recommends", "Suggests")
_FIELDS = frozenset({"Package", "Section", "Description", "Description-md5", *RELATIONS})
_TRANSLATED = frozenset({"Description-md5", "Description-en"})
COMPRESSED: dict[str, Callable[..., IO[str]]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*")


def build_packages(
    folder: Path,
    output: Path,
    releases: Sequence[str] | None = None,
    *,
    num_words: int = 2000,
    tell: Callable[[str], None] = print,
) -> None:
    """Reads index files and writes the graph in the plain npz format.

    The folder has one for every release, taken in order of name unless the order is given; below it
    lie its ``Packages`` and ``Translation-en`` files, plain or compressed, under any names that end
    so. The features are made of at most ``num_words`` words.
    """
    names = list(releases or sorted(path.name for path in folder.glob("*") if path.is_dir()))
    if not names:
        raise InputError(
            f"Expected a folder for every release in '{folder}' (got none); check the path."
        )
    archive = Archive()
    for name in names:
        tell(f"{name}: {archive.read_release(folder / name):,} new packages")
    write_arrays(output, archive.arrays(num_words) | {"times": np.array(names, dtype=np.str_)})


class Archive:
    """What is known of an archive's packages after some releases."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # of every name that was read, a package's or not
        self.first: dict[int, int] = {}  # the release in which each package comes
        self.section: dict[int, str] = {}
        self.text: dict[int, str] = {}
        self.needs: list[tuple[array[int], array[int]]] = []  # by release: who, whom

    def read_release(self, folder: Path) -> int:
        """Reads all index files below a folder as the next release; counts what it brings."""
        known = len(self.first)
        packages, translations = (
            index_files(folder, "Packages"),
            index_files(folder, "Translation-en"),
        )
        if not packages:
            raise InputError(
                f"Expected a file called Packages, .gz, .xz or .bz2 below '{folder}' (got none); "
                "put the release's index files there."
            )
        release, untold = len(self.needs), dict[str, list[int]]()
        who, whom = array("q"), array("q")
        self.needs.append((who, whom))
        for path in packages:
            for line, stanza in read_stanzas(path, _FIELDS):
                if not _NAME.fullmatch(stanza.get("Package", "")):
                    raise InputError(
                        f"Expected the name of a package in the stanza at line {line} of '{path}' "
                        f"(got '{stanza.get('Package', '')}'); correct it or leave it out."
                    )
                package = self._number(stanza["Package"])
                if package not in self.first:
                    self.first[package] = release
                    section = stanza.get("Section", "").rpartition("/")[2]
                    self.section[package] = section or "unknown"  # as package managers show it
                    self.text[package] = stanza.get("Description", "")
                    untold.setdefault(stanza.get("Description-md5", ""), []).append(package)
                for relation in RELATIONS:
                    for other in named(stanza.get(relation, "")):
                        who.append(package)
                        whom.append(self._number(other))
        untold.pop("", None)
        for path in translations:
            for _, stanza in read_stanzas(path, _TRANSLATED):
                for package in untold.pop(stanza.get("Description-md5", ""), ()):
                    self.text[package] = stanza.get("Description-en", "")
        return len(self.first) - known

    def _number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def arrays(self, num_words: int) -> dict[str, Array]:
        """Returns the arrays of the plain format but the releases' names."""
        names = list(self.numbers)
        order = sorted(self.first, key=lambda package: (self.first[package], names[package]))
        time = np.array([self.first[package] for package in order])
        sections = np.array([self.section[package] for package in order], dtype=np.str_)
        class_names, y = np.unique(sections, return_inverse=True)
        edges, edge_time = self._edges(order, time)
        return {
            **_features([self.text[package] for package in order], time, num_words),
            "edge_index": edges.astype(np.int32),
            "edge_time": smallest(edge_time),
            "y": y.astype(np.int64),
            "time": smallest(time),
            "class_names": class_names,
            "names": np.array([names[package] for package in order], dtype=np.str_),
        }

    def _edges(self, order: Sequence[int], time: Array) -> tuple[Array, Array]:
        """Finds every edge once, with the first release that names it while both ends are there."""
        row = np.full(len(self.numbers), -1)
        row[order] = np.arange(len(order))
        keys, releases = [], []
        for release, (who, whom) in enumerate(self.needs):
            source, target = row[np.array(who, dtype=np.int64)], row[np.array(whom, dtype=np.int64)]
            there = (target >= 0) & (time[target] <= release) & (source != target)
            keys.append(source[there] * len(order) + target[there])
            releases.append(np.full(keys[-1].size, release))
        found, first = np.unique(np.concatenate(keys), return_index=True)
        return np.stack(np.divmod(found, len(order))), np.concatenate(releases)[first]


def _features(texts: Sequence[str], time: Array, num_words: int) -> dict[str, Array]:
    """Weighs the words of descriptions, with vocabulary and weights of the first release."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 - slow to import

    tfidf = TfidfVectorizer(stop_words="english", max_features=num_words, dtype=np.float32)
    try:
        tfidf.fit([text for text, step in zip(texts, time.tolist(), strict=True) if step == 0])
    except ValueError:
        raise InputError(
            "Expected words in the descriptions of the first release (got none); add its "
            "Translation-en files."
        ) from None
    x = tfidf.transform(texts).tocsr()
    x.sort_indices()
    return {
        "x_data": x.data,
        "x_indices": x.indices.astype(np.int32),
        "x_indptr": x.indptr.astype(np.int32),
        "x_shape": np.array(x.shape, dtype=np.int64),
        "words": tfidf.get_feature_names_out().astype(np.str_),
    }


def named(relation: str) -> Iterator[str]:
    """Yields the packages of a relation, alternatives too, without versions and architectures."""
    for part in re.split(r"[,|]", relation):
        found = _NAME.match(part.strip())
        if found:
            yield found[0]


def index_files(folder: Path, ending: str) -> list[Path]:
    """Lists the files below a folder whose names end so, but for what compressed them."""
    every = (path for path in folder.rglob("*") if path.is_file())
    plain = ((path, path.stem if path.suffix in COMPRESSED else path.name) for path in every)
    return sorted(path for path, name in plain if name.endswith(ending))


def read_stanzas(path: Path, fields: frozenset[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the first line of every stanza and those of the fields that it has."""
    opener: Callable[..., IO[Any]] = COMPRESSED.get(path.suffix, open)
    stanza, field, first = dict[str, str](), "", 0
    try:
        with opener(path, "rt", encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                name, colon, value = line.partition(":")
                if not line.strip():
                    if first:
                        yield first, stanza
                    stanza, field, first = {}, "", 0
                elif line[0] in " \t" and field:
                    if field in fields:
                        stanza[field] += line
                elif colon and name and " " not in name:
                    field, first = name, first or number
                    if field in fields:
                        stanza[field] = value.strip()
                elif not line.startswith("#"):
                    raise InputError(
                        f"Expected 'Field: value' at line {number} of '{path}' (got "
                        f"'{line.strip()[:60]}'); the file is damaged or of another kind, so get "
                        "it again."
                    )
            if first:
                yield first, stanza
    except _DAMAGE as error:
        raise InputError(
            f"Expected '{path}' to be readable (got {brief(error)}); get it again."
        ) from None

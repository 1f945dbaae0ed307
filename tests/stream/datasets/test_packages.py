"""Packages: a hand-written archive of two releases becomes a graph in time."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from pathlib import Path

import numpy as np
import pytest

from evergraph.errors import InputError
from evergraph.stream.datasets import load_graph, read_plain
from evergraph.stream.datasets.download import mirror_indexes
from evergraph.stream.datasets.packages import build_packages, named, read_stanzas
from support import Command

# In the first release the editor needs a library, or another that only comes with the second,
# and a virtual package that never comes. The library's description stands in the translation.
OLD = """\
Package: editor
Section: universe/editors
Depends: libtext (>= 1.0), libfast | libslow, some-virtual-package
Suggests: editor
Description: edits plain documents
 Every document becomes plain.

Package: libtext
Section: libs
Pre-Depends: base:any
Description: short line
Description-md5: d1

Package: base
Section: admin
Description: tools
"""
NEW = """\
# a comment
Package: libfast
Section: libs
Description: fast novel documents

Package: editor
Section: text
Depends: libfast [amd64], libtext
Recommends: base

Package: libtext
Section: libs

Package: mystery
Description: of no section
"""
TRANSLATION = """\
Package: libtext
Description-md5: d1
Description-en: handles documents
 plain tools for plain documents
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    for name in ("1-old", "2-new"):
        (folder / name / "main").mkdir(parents=True)
    (folder / "1-old" / "main" / "Packages.gz").write_bytes(gzip.compress(OLD.encode()))
    (folder / "1-old" / "Translation-en.bz2").write_bytes(bz2.compress(TRANSLATION.encode()))
    (folder / "2-new" / "main" / "all_Packages.xz").write_bytes(lzma.compress(NEW.encode()))
    (folder / "2-new" / "Release").write_text("no index file\n")
    return folder


def built(archive: Path, **options) -> dict[str, np.ndarray]:
    output = archive.parent / "out" / "graph.npz"
    build_packages(archive, output, tell=lambda line: None, **options)
    with np.load(output, allow_pickle=False) as arrays:
        return dict(arrays)


def test_packages_come_by_release_and_name(archive):
    found = built(archive)
    assert found["names"].tolist() == ["base", "editor", "libtext", "libfast", "mystery"]
    assert found["time"].tolist() == [0, 0, 0, 1, 1]
    assert found["times"].tolist() == ["1-old", "2-new"]
    sections = found["class_names"][found["y"]].tolist()
    assert sections == ["admin", "editors", "libs", "libs", "unknown"]  # as they first were


def test_edges_lead_to_what_is_needed_from_the_release_on_that_says_so(archive):
    found = built(archive)
    names = found["names"][found["edge_index"]]
    edges = dict(zip(zip(*names.tolist(), strict=True), found["edge_time"].tolist(), strict=True))
    assert edges == {
        ("editor", "libtext"): 0,
        ("libtext", "base"): 0,
        ("editor", "libfast"): 1,  # named before, but there only now
        ("editor", "base"): 1,
    }


def test_features_know_the_words_of_the_first_release_alone(archive):
    found = built(archive)
    words = found["words"].tolist()
    assert words == ["document", "documents", "edits", "handles", "plain", "tools"]
    assert found["words"].dtype.kind == "U"
    graph = read_plain(archive.parent / "out" / "graph.npz")
    x = graph.x.dense()
    rows = {name: x[row] for row, name in enumerate(graph.node_names)}
    assert rows["libtext"][words.index("plain")] > rows["libtext"][words.index("handles")] > 0
    assert rows["libfast"].nonzero().flatten().tolist() == [words.index("documents")]  # not novel
    assert rows["mystery"].count_nonzero() == 0
    assert x.norm(dim=1).tolist() == pytest.approx([1, 1, 1, 1, 0])
    assert built(archive, num_words=2)["x_shape"].tolist() == [5, 2]


def test_releases_come_in_the_order_given(archive):
    found = built(archive, releases=["2-new", "1-old"])
    assert found["times"].tolist() == ["2-new", "1-old"]
    assert found["names"].tolist() == ["editor", "libfast", "libtext", "mystery", "base"]


def test_named_packages_are_stripped_to_their_names():
    text = "a (>= 1:2.0~), b:any | c [amd64 i386], libc++1, , d <!nocheck>,\n e.f-g"
    assert list(named(text)) == ["a", "b", "c", "libc++1", "d", "e.f-g"]


# What cannot be read.


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Package: a\n\nSection: b\n",
            r"name of a package in the stanza at line 3 of '.*Packages'",
        ),
        ("Package: a b\n", r"the stanza at line 1 of .*got 'a b'"),
        ("Package: a\nnonsense\n", r"Expected 'Field: value' at line 2 of .*\(got 'nonsense'\)"),
        (" continued\n", r"Expected 'Field: value' at line 1"),
        ("<html>: no\n<body class=x: y>\n", r"at line 2 of"),
    ],
)
def test_bad_stanza_is_one_sentence_with_file_and_line(tmp_path, text, sentence):
    (tmp_path / "in" / "one").mkdir(parents=True)
    (tmp_path / "in" / "one" / "Packages").write_text(text)
    with pytest.raises(InputError, match=sentence) as caught:
        build_packages(tmp_path / "in", tmp_path / "out.npz")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2"])
@pytest.mark.parametrize("whole", [False, True])
def test_damaged_file_is_one_sentence(tmp_path, ending, whole):
    compress = {".gz": gzip, ".xz": lzma, ".bz2": bz2}[ending].compress
    path = tmp_path / f"Packages{ending}"
    path.write_bytes(b"Package: a\n" if whole else compress(OLD.encode() * 50)[:-30])
    with pytest.raises(InputError, match="to be readable"):
        list(read_stanzas(path, frozenset({"Package"})))


def test_absent_folders_and_files_are_one_sentence(tmp_path):
    with pytest.raises(InputError, match="Expected a folder for every release in"):
        build_packages(tmp_path / "absent", tmp_path / "out.npz")
    (tmp_path / "one").mkdir()
    with pytest.raises(InputError, match=r"Expected a file called Packages.*below '.*one'"):
        build_packages(tmp_path, tmp_path / "out.npz", ["one"])
    (tmp_path / "one" / "Packages").write_text("Package: a\n")
    with pytest.raises(InputError, match="Expected words in the descriptions"):
        build_packages(tmp_path, tmp_path / "out.npz", ["one"])


# A mirror.


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """An archive as mirrors have it, of one release and component."""
    top = tmp_path / "mirror" / "dists" / "old"
    files = {
        "main/binary-amd64/Packages.gz": gzip.compress(OLD.encode()),
        "main/i18n/Translation-en.xz": lzma.compress(TRANSLATION.encode()),
    }
    listed = ["Components: main contrib", "SHA256:"]
    for name, content in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
        listed.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
    (top / "Release").write_text("\n".join(listed) + "\n")
    return tmp_path / "mirror"


def test_mirror_gives_what_its_release_lists(mirror, tmp_path):
    told = []
    for _ in range(2):  # the second time all is there
        mirror_indexes(mirror.as_uri(), ["old"], tmp_path / "kept", tell=told.append)
    assert [line.rpartition("/")[2] for line in told] == ["Packages.gz", "Translation-en.xz"]
    build_packages(tmp_path / "kept", tmp_path / "out.npz", tell=told.append)
    assert read_plain(tmp_path / "out.npz").node_names == ("base", "editor", "libtext")


def test_mirror_with_another_checksum_is_refused(mirror, tmp_path):
    (mirror / "dists/old/main/binary-amd64/Packages.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(InputError, match="another checksum than the release lists"):
        mirror_indexes(mirror.as_uri(), ["old"], tmp_path / "kept", tell=str)
    assert [path.name for path in (tmp_path / "kept/old").iterdir()] == ["Release"]
    with pytest.raises(InputError, match=r"Expected 'file://.*/dists/absent/Release' \(got"):
        mirror_indexes(mirror.as_uri(), ["absent"], tmp_path / "kept", tell=str)
    with pytest.raises(InputError, match=r"to begin with https://"):
        mirror_indexes("ftp://host", ["old"], tmp_path / "kept", tell=str)


# The command.


def test_command_builds_from_folders_and_mirrors(archive, mirror, command: Command, monkeypatch):
    monkeypatch.chdir(archive.parent)
    answer = command("datasets", "build", "packages", "--from", archive, "-o", "a.npz")
    assert (answer.code, answer.out) == (0, "")
    assert "1-old: 3 new packages" in answer.err
    words = ("--mirror", mirror.as_uri(), "--releases", "old", "--words", 3, "-o", "b.npz")
    assert command("datasets", "build", "packages", *words).code == 0
    assert read_plain(Path("b.npz")).num_features == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("build", "castles"), "Expected 'datasets' alone or 'datasets build packages'"),
        (("--from", "x"), "Expected 'datasets' alone or 'datasets build packages'"),
        (("build", "packages", "--from", "x"), "Expected '--output' (got none)"),
        (("build", "packages", "-o", "x.npz"), "Expected '--from' or '--mirror' (got neither)"),
        (
            ("build", "packages", "-o", "x.npz", "--mirror", "file:///nowhere"),
            "Expected '--releases' beside '--mirror'",
        ),
        (("build", "packages", "-o", "x.npz", "--words", 0), "Expected '--words' of at least 1"),
    ],
)
def test_command_refuses_half_of_what_it_needs(words, sentence, command: Command, tmp_path):
    answer = command("datasets", *words)
    assert answer.code == 2
    assert sentence in answer.err


@pytest.mark.dataset
def test_ubuntu_packages_is_as_described(data_root):
    graph = load_graph("ubuntu-packages", data_root)
    assert (graph.num_nodes, graph.num_features, len(graph.class_names)) == (120067, 2000, 59)
    assert len(graph.times) == 8
    assert graph.node_names[0] == "0ad"


def test_ubuntu_packages_are_never_downloaded(tmp_path, offline):
    with pytest.raises(InputError, match=r"Expected 'ubuntu-packages.npz' in .*datasets build"):
        load_graph("ubuntu-packages", tmp_path)
    assert offline == []

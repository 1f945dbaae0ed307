"""Where raw data files are looked for, and the two doors to the network.

Named datasets come through the library that publishes them (:func:`fetch`), an archive's index
files from the mirror that a user names (:func:`mirror_indexes`). Nothing else opens a connection.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import socket
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evergraph.errors import InputError
from evergraph.stream.datasets.npz import brief
from evergraph.stream.datasets.packages import COMPRESSED, read_stanzas

#: Seconds of silence after which a download counts as failed.
TIMEOUT = 30.0
ARXIV_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"

_CHUNK = 1 << 20
_FAILURES = (OSError, RuntimeError, http.client.HTTPException, zipfile.BadZipFile, KeyError)


def data_folder(data_root: Path | None) -> Path:
    """Returns the data root, else ``EVERGRAPH_DATA``, else a cache in the home folder."""
    folder = data_root or os.environ.get("EVERGRAPH_DATA") or "~/.cache/evergraph"
    path = Path(os.path.expanduser(folder))
    if path.is_file():
        raise InputError(
            f"Expected --data-root or EVERGRAPH_DATA to be a folder (got the file '{path}'); name "
            "the folder that holds the data."
        )
    return path


def find_file(root: Path, relative: str) -> Path | None:
    """Looks for a file below the root or below its folder ``raw``."""
    candidates = (root / relative, root / "raw" / relative)
    return next((path for path in candidates if os.path.isfile(path)), None)


def raw_file(dataset: str, root: Path, relative: str) -> Path:
    """Finds a raw file that must be there once some of its dataset's are."""
    path = find_file(root, relative)
    if path is None:
        raise InputError(
            f"Expected '{relative}' below '{root}' beside the other raw files of '{dataset}' "
            "(got none); put it there, or remove the folder so that it is downloaded again."
        )
    return path


def obtain(dataset: str, root: Path, members: Mapping[str, str | None]) -> None:
    """Downloads a dataset's raw files, whole or not at all, unless there are some already.

    ``members`` are the raw files, relative to the data root, and which member of the downloaded
    archive each one is; None is the downloaded file itself.
    """
    if any(find_file(root, relative) for relative in members):
        return
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # neither library sets one, and a dead link would hang
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder:
            _place(fetch(dataset, Path(folder)), root, members)
    except InputError:
        raise
    except _FAILURES as error:
        raise InputError(
            f"Expected '{next(iter(members))}' below '{root}' for dataset '{dataset}' (got no "
            f"such file, and the download failed: {brief(error)}); put the file there, point "
            "--data-root or EVERGRAPH_DATA at the folder that has it, or go online."
        ) from None
    finally:
        socket.setdefaulttimeout(before)


def fetch(dataset: str, folder: Path) -> Path:
    """Downloads a dataset's archive into a folder through the library that publishes it.

    Nothing here opens what came.
    """
    package, extra = ("ogb", "ogb") if dataset == "ogbn-arxiv" else ("torch_geometric", "pyg")
    try:
        if package == "ogb":
            from ogb.utils.url import download_url as download  # noqa: PLC0415

            url = ARXIV_URL
        else:
            from torch_geometric.data import download_url as download  # noqa: PLC0415
            from torch_geometric.datasets import Amazon, Reddit  # noqa: PLC0415

            amazon = f"{Amazon.url}amazon_electronics_computers.npz"
            url = {"amazon-computers": amazon, "reddit": Reddit.url}[dataset]
    except ImportError:
        raise InputError(
            f"Expected the package '{package}' to download '{dataset}' (got none installed); "
            f"run pip install 'evergraph[{extra}]' or put its raw files below --data-root."
        ) from None
    return Path(download(url, str(folder)))


def _place(archive: Path, root: Path, members: Mapping[str, str | None]) -> None:
    """Unpacks every wanted member beside the archive, then moves all to their places."""
    # Every source is a zip (an npz is one); this also catches a download cut short.
    if not zipfile.is_zipfile(archive):
        raise zipfile.BadZipFile("what came is incomplete or another file")
    ready = {}
    with zipfile.ZipFile(archive) as opened:
        for target, member in members.items():
            ready[target] = archive
            if member is not None:
                ready[target] = archive.with_name(f"member-{len(ready)}")
                with opened.open(member) as source, ready[target].open("wb") as sink:
                    shutil.copyfileobj(source, sink, _CHUNK)
    for target, file in ready.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, root / target)


def mirror_indexes(
    mirror: str,
    releases: Sequence[str],
    folder: Path,
    *,
    architecture: str = "amd64",
    tell: Callable[[str], None] = print,
) -> None:
    """Downloads the index files of releases from a Debian-style archive, each into its own folder.

    What a release consists of, and the checksum of every file, stands in its ``Release`` file below
    ``dists``. Files that are there already, and right, are not downloaded again.
    """
    for release in releases:
        base, place = f"{mirror.rstrip('/')}/dists/{release}", folder / release
        place.mkdir(parents=True, exist_ok=True)
        listing = place / "Release"
        _save(f"{base}/Release", listing)
        _, about = next(read_stanzas(listing, frozenset({"Components", "SHA256"})), (0, {}))
        rows = [line.split() for line in about.get("SHA256", "").splitlines()]
        sums = {row[2]: row[0] for row in rows if len(row) == 3}
        for component in about.get("Components", "").split():
            for name in (f"binary-{architecture}/Packages", "i18n/Translation-en"):
                offered = (f"{component}/{name}{ending}" for ending in (".xz", *COMPRESSED))
                path = next((path for path in offered if path in sums), None)
                if path is None:
                    continue
                target = place / path.replace("/", "_")
                if not target.is_file() or _sha256(target) != sums[path]:
                    tell(f"{base}/{path}")
                    _save(f"{base}/{path}", target, sums[path])


def _save(url: str, target: Path, expected: str | None = None) -> None:
    """Downloads one file, whole or not at all, and compares its checksum."""
    if not url.startswith(("https://", "http://", "file://")):
        raise InputError(
            f"Expected '--mirror' to begin with https://, http:// or file:// (got '{url}'); write "
            "the whole address."
        )
    part = target.with_name(f".{target.name}.part")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as source, part.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)
        if expected is not None and _sha256(part) != expected:
            raise OSError("another checksum than the release lists")
        os.replace(part, target)
    except _FAILURES as error:
        raise InputError(
            f"Expected '{url}' (got {brief(error)}); check the mirror and the release, or go "
            "online and try again."
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

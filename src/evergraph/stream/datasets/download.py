"""Where raw data files are looked for, and the one door to the network."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from evergraph.errors import InputError
from evergraph.stream.datasets.npz import brief

#: Seconds of silence after which a download counts as failed.
TIMEOUT = 30.0
ARXIV_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"

_FAILURES = (OSError, RuntimeError, http.client.HTTPException, zipfile.BadZipFile, KeyError)


def data_folder(data_root: Path | None) -> Path:
    """Returns the data root, else ``EVERGRAPH_DATA``, else a cache in the home folder."""
    folder = data_root or Path(os.environ.get("EVERGRAPH_DATA") or "~/.cache/evergraph")
    return folder.expanduser()


def find_file(root: Path, relative: str) -> Path | None:
    """Looks for a file below the root or below its folder ``raw``."""
    candidates = (root / relative, root / "raw" / relative)
    return next((path for path in candidates if path.is_file()), None)


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

    Args:
        dataset: A name that :func:`fetch` knows.
        root: The data root.
        members: The raw files, relative to ``root``, and which member of the downloaded
            archive each one is; None is the downloaded file itself.

    Raises:
        InputError: With the ways out, if the download fails.
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

    Nothing else in the package opens a connection, and nothing here opens what came.
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
                    shutil.copyfileobj(source, sink, 1 << 20)
    for target, file in ready.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, root / target)

"""Where data files are looked for, and the one door to the network."""

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

#: Seconds of silence after which a download counts as failed.
TIMEOUT = 30.0
ARXIV_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"

_FAILURES = (OSError, RuntimeError, http.client.HTTPException, zipfile.BadZipFile, KeyError)


def data_folder(data_root: Path | None) -> Path:
    """Returns the data root, else ``EVERGRAPH_DATA``, else a cache in the home folder."""
    if data_root is not None:
        return data_root.expanduser()
    if os.environ.get("EVERGRAPH_DATA"):
        return Path(os.environ["EVERGRAPH_DATA"]).expanduser()
    return Path("~/.cache/evergraph").expanduser()


def find_file(root: Path, relative: str) -> Path | None:
    """Looks for a file below the root or below its folder ``raw``."""
    for candidate in (root / relative, root / "raw" / relative):
        if candidate.is_file():
            return candidate
    return None


def fetch(dataset: str, folder: Path) -> Path:
    """Downloads a dataset's archive into a folder through the library that publishes it.

    Nothing else in the package opens a connection, and nothing here opens what came.
    """
    if dataset == "ogbn-arxiv":
        try:
            from ogb.utils.url import download_url as ogb_download  # noqa: PLC0415
        except ImportError:
            raise InputError(
                "Expected the package 'ogb' to download 'ogbn-arxiv' (got none installed); "
                "run pip install 'evergraph[ogb]' or put its raw files below --data-root."
            ) from None
        return Path(ogb_download(ARXIV_URL, str(folder)))
    from torch_geometric.data import download_url  # noqa: PLC0415
    from torch_geometric.datasets import Amazon, Reddit  # noqa: PLC0415

    urls = {
        "amazon-computers": f"{Amazon.url}amazon_electronics_computers.npz",
        "reddit": Reddit.url,
    }
    return Path(download_url(urls[dataset], str(folder)))


def obtain(dataset: str, root: Path, members: Mapping[str, str] | str) -> None:
    """Downloads a dataset so that its files appear below ``root`` whole or not at all.

    Args:
        dataset: A name that :func:`fetch` knows.
        root: The data root.
        members: Where each wanted member of the archive goes, relative to ``root``; or
            where the downloaded file itself goes.

    Raises:
        InputError: With the ways out, if the download fails.
    """
    targets = [members] if isinstance(members, str) else list(members.values())
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
            f"Expected '{targets[0]}' below '{root}' for dataset '{dataset}' (got no such file, "
            f"and the download failed: {_brief(error)}); put the file there, point --data-root "
            "or EVERGRAPH_DATA at the folder that has it, or go online."
        ) from None
    finally:
        socket.setdefaulttimeout(before)


def _place(archive: Path, root: Path, members: Mapping[str, str] | str) -> None:
    # Every source is a zip (an npz is one); this also catches a download cut short.
    if not zipfile.is_zipfile(archive):
        raise zipfile.BadZipFile("what came is incomplete or another file")
    if isinstance(members, str):
        _move(archive, root / members)
        return
    with zipfile.ZipFile(archive) as opened:
        for number, member in enumerate(members):
            whole = archive.with_name(f"member-{number}")
            with opened.open(member) as source, whole.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    for number, target in enumerate(members.values()):
        _move(archive.with_name(f"member-{number}"), root / target)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)


def _brief(error: BaseException) -> str:
    text = str(error).strip().strip("<>'\"") or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:160]

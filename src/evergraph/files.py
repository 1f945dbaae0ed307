"""Files that are either whole or absent: written beside, synced, then renamed."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from evergraph.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def write_atomic(path: Path, content: bytes) -> None:
    """Replaces a file in one step; a reader sees the old or the new content, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        write_synced(beside, content)
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise unwritable(path, error) from None


def write_synced(path: Path, content: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Waits until the disk has the names in a folder, where the system can do that."""
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> InputError:
    """Builds the error for a file that cannot be written."""
    remedy = "free some" if error.errno == errno.ENOSPC else "choose another path"
    return InputError(f"Expected to write '{path}' (got: {error.strerror}); {remedy}.")


def read_regular(path: Path, root: Path | None = None) -> bytes:
    """Reads a whole file that may come from anyone; follows no link that leads elsewhere.

    A pipe or a device is not waited for, and a file larger than the memory is not read: all but a
    regular file raises OSError. Below ``root`` no part of the path may be a link; without it links
    are followed.
    """
    flags = ["O_NONBLOCK", "O_CLOEXEC", "O_BINARY"]  # of which a system has some
    if root is not None:
        flags.append("O_NOFOLLOW")
        for part in [path, *(root / part for part in path.relative_to(root).parents)]:
            if part != root and part.is_symlink():
                raise OSError(0, f"'{part}' is a link")
    handle = os.open(path, os.O_RDONLY | sum(getattr(os, name, 0) for name in flags))
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "not a regular file")
        if about.st_size > physical_memory():
            raise OSError(0, "larger than the memory")
        return file.read(about.st_size)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON atomically; NaN and infinity are refused, not written."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode())


def read_json(path: Path, remedy: str = "restore it or remove its folder") -> Any:
    """Reads JSON, turning a missing or broken file into one sentence."""
    try:
        return json.loads(read_regular(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
        raise InputError(f"Expected to read '{path}' (got: {reason}); {remedy}.") from None


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, in one sentence if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Expected to create the folder '{path}' (got: {error.strerror}); choose another path."
        ) from None


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Gives a name beside a folder to write to, and puts what is there in the folder's place."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    make_folder(folder.parent)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        yield beside
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@cache
@cache
def physical_memory() -> int:
    """Returns the memory of this machine, or container, in bytes, whoever uses it now."""
    if sys.platform != "win32":
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min([there, *_container_limits()])
    status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its own length, then the whole memory
    ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(status)
    return status[1]


def _container_limits() -> Iterator[int]:
    """Yields what Linux's control groups allow this process, of either version."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in ("", "memory"):
                name = "memory.limit_in_bytes" if controllers else "memory.max"
                root = Path("/sys/fs/cgroup", controllers)
                for folder in (root / group.lstrip("/"), root):
                    with suppress(OSError, ValueError):  # "max" is no limit
                        yield int((folder / name).read_text("ascii"))


TENSOR = "$tensor"


def pack(state: Any) -> bytes:
    """Writes nested tensors and plain values as safetensors, the plain values as JSON in it."""
    from safetensors.torch import save  # noqa: PLC0415 - who reads plain files needs no PyTorch

    tensors: dict[str, Tensor] = {}
    document = _document(state, tensors)
    return save(tensors, metadata={"state": document})


def unpack(content: bytes) -> Any:
    """Reads what :func:`pack` wrote; tensors lie on the CPU. Damaged content raises anything."""
    from safetensors.torch import load  # noqa: PLC0415 - as above

    tensors = load(content)  # checks every declared size against the content
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])

    def lower(part: dict[str, Any]) -> Any:
        return tensors[part[TENSOR]] if part.keys() == {TENSOR} else part

    return json.loads(header["__metadata__"]["state"], object_hook=lower)


def checksum(state: Any) -> str:
    """Computes a checksum of nested tensors and plain values, the same before and after packing."""
    import torch  # noqa: PLC0415 - as above

    tensors: dict[str, Tensor] = {}
    found = hashlib.sha256(_document(state, tensors).encode())
    for tensor in tensors.values():
        found.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _document(state: Any, tensors: dict[str, Tensor]) -> str:
    """Writes JSON with numbers for tensors, collecting copies: two may share their memory."""

    def lift(value: Any) -> dict[str, str]:
        if not _is_tensor(value):
            raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {TENSOR: name}

    return json.dumps(state, default=lift)


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def to_device(value: Any, device: torch.device | str, copy: bool = False) -> Any:
    """Moves all tensors in nested values, leaving those alone that are there unless ``copy``."""
    if _is_tensor(value):
        return value.detach().to(device, copy=copy)
    if isinstance(value, Mapping):
        return {key: to_device(item, device, copy) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device, copy) for item in value]
    return value

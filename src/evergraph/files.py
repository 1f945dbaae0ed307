"""Files that are either whole or absent: written beside, synced, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load, save
from torch import Tensor

from evergraph.errors import InputError


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
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> InputError:
    """Builds the error for a file that cannot be written."""
    return InputError(
        f"Expected to write '{path}' (got: {error.strerror}); free space or choose another "
        "folder (--output)."
    )


def read_regular(path: Path, root: Path | None = None) -> bytes:
    """Reads a whole file that may come from anyone; follows no link that leads elsewhere.

    A pipe or a device is not waited for, and a file larger than the memory is not read.

    Args:
        path: The file.
        root: The folder that it lies in: no part of the path below it may be a link. Without
            it links are followed.

    Raises:
        OSError: If there is no such regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if root is not None:
        flags |= os.O_NOFOLLOW
        for part in path.relative_to(root).parents:
            if (root / part) != root and (root / part).is_symlink():
                raise OSError(0, f"'{root / part}' is a link")
    handle = os.open(path, flags)
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


def read_json(path: Path) -> Any:
    """Reads JSON, turning a missing or broken file into one sentence."""
    try:
        return json.loads(read_regular(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
        raise InputError(
            f"Expected to read '{path}' (got: {reason}); restore it or remove its folder."
        ) from None


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, in one sentence if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Expected to create the folder '{path}' (got: {error.strerror}); choose another "
            "--output."
        ) from None


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Gives a name beside a folder to write to, and puts what is there in the folder's place."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    make_folder(folder.parent)
    shutil.rmtree(beside, ignore_errors=True)
    yield beside
    if folder.exists():
        shutil.rmtree(folder)
    beside.rename(folder)


def physical_memory() -> int:
    """Returns the memory of this machine in bytes, whoever uses it now."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


TENSOR = "$tensor"


def pack(state: Any) -> bytes:
    """Writes nested tensors and plain values as safetensors, the plain values as JSON in it."""
    tensors: dict[str, Tensor] = {}
    document = _lift(state, tensors)
    return save(tensors, metadata={"state": json.dumps(document)})


def unpack(content: bytes) -> Any:
    """Reads what :func:`pack` wrote; tensors lie on the CPU. Damaged content raises anything."""
    tensors = load(content)  # checks every declared size against the content
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return _lower(json.loads(header["__metadata__"]["state"]), tensors)


def checksum(state: Any) -> str:
    """Computes a checksum of nested tensors and plain values, the same before and after packing."""
    tensors: dict[str, Tensor] = {}
    found = hashlib.sha256(json.dumps(_lift(state, tensors)).encode())
    for tensor in tensors.values():
        found.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def to_device(value: Any, device: torch.device | str, copy: bool = False) -> Any:
    """Moves all tensors in nested values, leaving those alone that are there unless ``copy``."""
    if isinstance(value, Tensor):
        return value.detach().to(device, copy=copy)
    if isinstance(value, Mapping):
        return {key: to_device(item, device, copy) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device, copy) for item in value]
    return value


def _lift(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Replaces tensors by numbers, collecting copies: two of them may share their memory."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return {str(key): _lift(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_lift(item, tensors) for item in value]
    return value


def _lower(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Puts the tensors back where :func:`_lift` took them from."""
    if isinstance(value, dict):
        if value.keys() == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: _lower(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_lower(item, tensors) for item in value]
    return value


#: A configuration has about 2,000 characters; reading is slow in the length.
MAX_LENGTH = 100_000
#: Nothing is nested deeper; going to Python's limit takes most of a second.
MAX_DEPTH = 50


class PlainLoader(yaml.SafeLoader):
    """Reads plain values; a reference to another value is refused.

    A few lines of references to references stand for more values than fit in any memory.
    """

    depth = 0  # of the value that is being composed

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Composes one value that is written out."""
        if self.check_event(yaml.AliasEvent):
            raise InputError("a reference")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError("too deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class PlainDumper(yaml.SafeDumper):
    """Writes every value out, also one that comes twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Tells not to refer to a value written before."""
        return True


def dump_yaml(content: Any) -> str:
    """Writes plain values so that :func:`load_yaml` reads them back."""
    return yaml.dump(content, Dumper=PlainDumper, sort_keys=False, allow_unicode=True)


def load_yaml(text: str, source: str) -> Any:
    """Reads YAML, turning every failure into one sentence."""
    if len(text) > MAX_LENGTH:
        raise InputError(
            f"Expected '{source}' of at most {MAX_LENGTH} characters (got {len(text)}); check that "
            "it is a configuration."
        )
    try:
        return yaml.load(text, Loader=PlainLoader)
    except InputError:
        raise InputError(
            f"Expected '{source}' without references (got one, written *name); write the value out."
        ) from None
    except Exception as error:  # the loader lets many kinds through, such as KeyError
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"Expected '{source}' to be YAML (it is not{where}); fix it.") from None

"""Archives of arrays (npz), read without pickle and without trusting declared sizes."""

from __future__ import annotations

import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from evergraph.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

#: Deflate cannot shrink data more than this; a larger claim is not a real archive.
MAX_DEFLATE_RATIO = 1032
#: What zipfile, zlib and numpy raise on damaged bytes.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """Reads the named arrays of an npz file; other keys are not touched.

    Raises:
        InputError: If the file is absent, damaged, not an npz, lacks a required key or
            holds Python objects under a wanted key.
    """
    if not path.is_file():
        raise InputError(f"Expected a file at '{path}' (got none); check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            present = {info.filename: info for info in archive.infolist()}
            for key in required:
                if f"{key}.npy" not in present:
                    raise InputError(
                        f"Expected '{key}' in '{path}' (got "
                        f"{_listing(present)}); add the missing array."
                    )
            wanted = [key for key in (*required, *optional) if f"{key}.npy" in present]
            return {key: _read_one(archive, present[f"{key}.npy"], key, path) for key in wanted}
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"Expected '{path}' to be an npz archive (got {_brief(error)}); the file is "
            "truncated or of another kind, so make or download it again."
        ) from None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an npz file in one step: the same arrays give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for key, array in arrays.items():
                info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read_one(archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str, path: Path) -> Array:
    try:
        with archive.open(info) as member:
            shape, dtype, header = _read_header(member)
        if dtype.hasobject:
            raise InputError(
                f"Expected '{key}' of '{path}' to hold numbers or text (got Python objects, "
                "which need pickle); save it as a plain array."
            )
        size = math.prod(shape) * dtype.itemsize
        # Both checks come before the allocation, so that a lie costs nothing.
        if header + size != info.file_size or size > MAX_DEFLATE_RATIO * info.compress_size:
            raise ValueError(f"a header that declares shape {shape}, against the stored bytes")
        with archive.open(info) as member:
            array: Array = np.lib.format.read_array(member, allow_pickle=False)
            member.read(1)  # reaching the end makes zipfile verify the checksum
        return array
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"Expected '{key}' of '{path}' to be readable (got {_brief(error)}); the file is "
            "damaged, so make or download it again."
        ) from None


def _read_header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Returns an array's shape, dtype and the number of bytes before its data."""
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"array format version {version}")
    if any(length < 0 for length in shape):
        raise ValueError(f"a negative length in shape {shape}")
    return shape, dtype, member.tell()


def _listing(names: Mapping[str, Any]) -> str:
    keys = sorted(name.removesuffix(".npy") for name in names)
    shown = ", ".join(keys[:8]) + (", …" if len(keys) > 8 else "")
    return f"only {shown}" if keys else "an empty archive"


def _brief(error: Exception) -> str:
    """Keeps an exception's message to one line without a full stop."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.rstrip(".")[:160]

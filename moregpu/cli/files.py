"""Arrays in files: `.npy`, `.safetensors`, `-` for standard input and output; and jobs in `job.toml`.

A file is data and nothing else: pickled objects are refused, whatever it says. What is written appears whole or not at
all. safetensors: 8 bytes of header length, a JSON header, the data (github.com/huggingface/safetensors).
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import secrets
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any, cast

import msgspec
from msgspec import Meta

from moregpu.errors import InvalidRequest
from moregpu.jobs import Check, Engine
from moregpu.workloads.kernel.spec import Operation

STANDARD = "-"
SAFETENSORS = ".safetensors"
MAX_HEADER_BYTES = 100_000_000  # as safetensors itself limits it
MAX_NAME_BYTES = 255
"""Of a file, on most systems; a character has up to four."""

_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "u1",
           "BOOL": "b1"}  # fmt: skip
_NAMES = {kind.lstrip("<"): name for name, kind in _DTYPES.items()}


class JobFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a `job.toml` may say. Paths are relative to the file."""

    operation: Operation
    inputs: list[str] | dict[str, str | float] = []
    formula: str = ""
    kernel: str = ""  # of operation "custom": the registered kernel's name
    size: Annotated[int, Meta(ge=0)] | None = None
    scalar: float = 1.0
    output: str | None = None
    name: str | None = None
    group: str | None = None
    priority: int | None = None
    after: list[str] | str | None = None
    check: Check | None = None
    engine: Engine | None = None
    device: str | None = None
    memory_bytes: int | None = None
    time_limit_s: float | None = None
    retries: int | None = None
    keep_s: float | None = None
    seed: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The fields that every job has, those that the file names."""
        return {name: getattr(self, name) for name in _COMMON if getattr(self, name) is not None}


_COMMON = ("name", "group", "priority", "after", "check", "engine", "device", "memory_bytes", "time_limit_s", "retries",
           "keep_s", "seed")  # fmt: skip


def load_job(path: str) -> JobFile:
    """Read a job.toml; its paths become ones from here."""
    place = Path(path)
    try:
        job = msgspec.toml.decode(place.read_bytes().removeprefix(codecs.BOM_UTF8), type=JobFile)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is no job: {error}", "docs/quickstart.md shows one") from error

    def here(value: str | float) -> Any:
        return value if not isinstance(value, str) or value == STANDARD else str(place.parent / value)

    inputs: Any = {name: here(value) for name, value in job.inputs.items()} if isinstance(job.inputs, dict) else [
        here(value) for value in job.inputs
    ]  # fmt: skip
    return msgspec.structs.replace(job, inputs=inputs, output=here(job.output) if job.output else None)


def load(path: str) -> Any:
    """Read one array. `weights.safetensors:layer.0` names one of several."""
    import numpy as np

    file, _, tensor = path.partition(f"{SAFETENSORS}:")
    if tensor or path.endswith(SAFETENSORS):
        return _from_safetensors(f"{file}{SAFETENSORS}" if tensor else path, tensor)
    try:
        array = np.load(_source(path), allow_pickle=False)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, SyntaxError, UnicodeError, MemoryError) as error:
        # NumPy's own words would have people allow pickles, which run whatever the file says.
        why = "it holds Python objects, or something else" if "pickle" in str(error) else str(error)
        raise InvalidRequest(f"{path} is no .npy file of numbers: {why}", "numpy.save writes them") from error
    if not isinstance(array, np.ndarray):
        raise InvalidRequest(f"{path} holds several arrays", "save one array to a file: numpy.save")
    return array


def _source(path: str) -> Any:
    """What NumPy may go to and fro in: a pipe (`<(zcat a.npy.gz)`) is read to its end first."""
    if path == STANDARD:
        content = sys.stdin.buffer.read()
        if not content:
            raise InvalidRequest(
                "standard input holds nothing more", "- stands for one input, once: pipe a .npy into it"
            )
        return io.BytesIO(content)
    place = Path(path)
    return io.BytesIO(place.read_bytes()) if place.is_fifo() else place


def save(array: Any, path: str) -> None:
    """Write one array, as `.safetensors` where the name ends so, else as `.npy`."""
    import numpy as np

    if path == STANDARD:
        np.save(sys.stdout.buffer, array)
    elif path.endswith(SAFETENSORS):
        _whole(path, lambda file: _to_safetensors(file, array))
    else:
        _whole(path, lambda file: np.save(file, array))


def check_place(path: str) -> None:
    """Raise `InvalidRequest` where `save` could not write: before a job is run, not after."""
    if path == STANDARD:
        return
    place = _place(path)
    if place.is_dir():
        raise InvalidRequest(f"{path} is a folder", "name a file in it")
    if _is_written_into(place):
        if not os.access(place, os.W_OK):
            raise InvalidRequest(f"{path} cannot be written: nobody lets you", "choose another place")
        return
    if not place.parent.is_dir():
        raise InvalidRequest(f"{path} cannot be written: there is no folder {place.parent}", "make it first")
    if not os.access(place.parent, os.W_OK):
        raise InvalidRequest(
            f"{path} cannot be written: nobody lets you write to {place.parent}", "choose another place"
        )


def _place(path: str) -> Path:
    """Where a path leads: a link stays, and the file that it names is written. Raises `InvalidRequest`."""
    try:
        if _is_written_into(Path(path)):
            return Path(path)
        place = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            place.lstat()  # raises for a name that no file can have
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    return place


def _is_written_into(place: Path) -> bool:
    """Whether somebody reads what is there, a pipe or a device: put in its place, a file would not reach them."""
    return place.exists() and not place.is_file() and not place.is_dir()


def _whole(path: str, write: Callable[[IO[bytes]], None]) -> None:
    place = _place(path)
    if _is_written_into(place):
        content = io.BytesIO()  # what is no file cannot be gone to and fro in
        write(content)
        try:
            with place.open("wb") as there:
                there.write(content.getbuffer())
        except OSError as error:
            raise _unwritable(path, error) from error
        return
    fresh = place.with_name(f".{place.name[: MAX_NAME_BYTES // 4]}.{secrets.token_hex(4)}.part")
    try:
        with fresh.open("wb") as file:
            write(file)
        fresh.replace(place)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        fresh.unlink(missing_ok=True)


def _unwritable(path: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(
        f"{path} cannot be written: {getattr(error, 'strerror', None) or error}", "choose another place"
    )


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _from_safetensors(path: str, wanted: str) -> Any:
    """Read one tensor; only its bytes."""
    import numpy as np

    try:
        with Path(path).open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER_BYTES:
                raise InvalidRequest(f"{path} is no .safetensors file: a header of {length} bytes")
            header = msgspec.json.decode(file.read(length), type=dict[str, Any])
            header.pop("__metadata__", None)
            if (wanted and wanted not in header) or (not wanted and len(header) != 1):
                names = ", ".join(sorted(header)[:20]) or "nothing"
                raise InvalidRequest(f"{path} holds {names}", f"name one: {path}:NAME")
            entry = msgspec.convert(header[wanted or next(iter(header))], _Entry)
            if entry.dtype not in _DTYPES:
                raise InvalidRequest(f"{path} holds {entry.dtype}, which NumPy lacks", "save it as F32 or F16")
            begin, end = entry.data_offsets
            file.seek(8 + length + begin)
            return np.frombuffer(file.read(end - begin), _DTYPES[entry.dtype]).reshape(entry.shape)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, struct.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError) as error:
        raise InvalidRequest(f"{path} is no .safetensors file: {error}") from error


def _to_safetensors(file: IO[bytes], array: Any) -> None:
    kind = _NAMES[cast("str", array.dtype.str).lstrip("<|")]
    entry = _Entry(dtype=kind, shape=array.shape, data_offsets=(0, array.nbytes))
    header = msgspec.json.encode({"out": entry})
    header += b" " * (-len(header) % 8)
    file.write(struct.pack("<Q", len(header)) + header)
    file.write(array.reshape(-1).view("u1").data if array.nbytes else b"")


def _missing(path: str) -> InvalidRequest:
    whole = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
    return InvalidRequest(f"there is no file {path}{whole}", "name one that is there; a path is read from this folder")

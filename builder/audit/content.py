"""The bytes of one file, read from any place of it: in memory, in an open file, or unpacked into a temporary one.

Whatever a file holds, what is raised here is AuditError, which is a ValueError in words, or OSError.

Source: zstd.h of zstd 1.5, read 2026-11-23. The library refuses a window of more than 128 MiB by itself.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Protocol

from ..sif.bounded import BoundsError, format_bound

IN_MEMORY = 128 << 20  # bytes of one unpacked file; a larger one is written to a temporary file
LARGEST = 16 << 30  # bytes of one unpacked file; the largest library of a torch has two GiB
CHUNK = 1 << 20
ELF = b"\x7fELF"
# What is never looked into: texts, bytecode and pictures by their names.
TEXTS = (
    ".py", ".pyc", ".pyi", ".txt", ".md", ".rst", ".h", ".hpp", ".hh", ".cuh", ".inc", ".c", ".cc", ".cpp", ".pxd",
    ".pyx", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".html", ".css", ".js", ".map", ".ts", ".svg", ".png",
    ".jpg", ".gif", ".csv", ".npy", ".npz", ".pdf", ".xml", ".mo", ".po", ".ttf", ".gz", ".cmake", ".pc", ".typed",
)  # fmt: skip


class AuditError(BoundsError):
    """A file that is damaged, or more than it may be."""


class Content(Protocol):
    """A file of a known size that can be read from any place."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...


class ByteSource(Protocol):
    """Bytes that come one after the other."""

    def read(self, size: int, /) -> bytes | bytearray: ...


@dataclass(frozen=True)
class Memory:
    """Bytes."""

    data: bytes | bytearray

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        """Some of them, fewer at the end."""
        return bytes(memoryview(self.data)[offset : offset + size])


@dataclass(frozen=True, kw_only=True)
class OpenFile:
    """An open file."""

    descriptor: int
    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Some bytes of it, fewer at the end; raises OSError."""
        if not 0 <= offset < self.size:
            return b""
        return os.pread(self.descriptor, min(size, self.size - offset), offset)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A file that may be an ELF file; its size in bytes is what is said of it."""

    path: str
    size: int
    open: Callable[[], AbstractContextManager[Content]]


class Window:
    """A part of a file that is read from front to back, with short steps; places count from the part's beginning."""

    def __init__(self, content: Content, *, offset: int, size: int) -> None:
        self.content, self.offset = content, offset
        self.size = max(0, min(size, content.size - offset))
        self.data, self.begin = b"", 0

    def get(self, place: int, size: int) -> bytes:
        """So many bytes from a place on; raises AuditError where there are fewer."""
        at = place - self.begin
        if at < 0 or at + size > len(self.data):
            if place < 0 or place + size > self.size:
                raise AuditError("it is cut short")
            self.data = self.content.read(self.offset + place, min(max(CHUNK, size), self.size - place))
            self.begin, at = place, 0
            if len(self.data) < size:
                raise AuditError("it is cut short")
        return self.data[at : at + size]

    def find(self, word: re.Pattern[bytes], place: int, *, length: int) -> int:
        """Where one of several words of at most this length is next, -1 where none is."""
        while place < self.size:
            self.get(place, min(length, self.size - place))
            found = word.search(self.data, place - self.begin)
            if found is not None:
                return self.begin + found.start()
            place = max(place + 1, self.begin + len(self.data) - length + 1)
        return -1


def can_be_elf(path: str, size: int) -> bool:
    """Whether a file can be an ELF file, by its name and size."""
    return size >= 52 and not path.lower().endswith(TEXTS)


def unpack_member(stream: ByteSource, *, size: int, head: bytes = b"") -> AbstractContextManager[Content]:
    """A file out of an archive, whole: `head` was read of it before; raises AuditError and OSError."""
    if size > LARGEST:
        raise AuditError(f"it is larger than {format_bound(LARGEST)}")
    if size <= IN_MEMORY:
        found = bytearray(head)
        while len(found) < size and (part := stream.read(min(CHUNK, size - len(found)))):
            found += part
        _check_length(len(found), size)
        return nullcontext(Memory(found))
    return _TemporaryCopy(stream, size=size, head=head)


def _check_length(found: int, said: int) -> None:
    if found != said:
        raise AuditError("it is cut short")


class _TemporaryCopy(AbstractContextManager[Content]):
    """A file out of an archive in a temporary file, which is gone with the process."""

    def __init__(self, stream: ByteSource, *, size: int, head: bytes) -> None:
        self.stream, self.size, self.head = stream, size, head

    def __enter__(self) -> Content:
        self.file = tempfile.TemporaryFile(prefix="recipe-audit-")
        try:
            self.file.write(self.head)
            left = self.size - len(self.head)
            while left > 0 and (part := self.stream.read(min(CHUNK, left))):
                self.file.write(part)
                left -= len(part)
            self.file.flush()
            _check_length(self.size - left, self.size)
        except BaseException:
            self.file.close()
            raise
        return OpenFile(descriptor=self.file.fileno(), size=self.size)

    def __exit__(self, *_: object) -> None:
        self.file.close()


ZSTD_LIBRARY = "libzstd.so.1"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer have the same three fields."""

    _fields_ = (("place", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t))


@lru_cache(maxsize=1)
def _load_library() -> Any:
    try:
        library = ctypes.CDLL(ZSTD_LIBRARY)
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
        library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)]
        library.ZSTD_decompressStream.restype = ctypes.c_size_t
        library.ZSTD_isError.argtypes = [ctypes.c_size_t]
        library.ZSTD_isError.restype = ctypes.c_uint
    except (OSError, AttributeError):
        raise AuditError(f"it is packed with zstd, and there is no {ZSTD_LIBRARY} on this machine") from None
    return library


class ZstdReader:
    """A packed stream, read unpacked from front to back; raises AuditError where it is damaged.

    It may have several frames; with `single` it ends with the first one, whatever follows.
    """

    def __init__(self, source: ByteSource, *, room: int = CHUNK, single: bool = False) -> None:
        self.source, self.library, self.single = source, _load_library(), single
        self.context = self.library.ZSTD_createDCtx()
        self.packed, self.input = b"", _Buffer(None, 0, 0)
        self.room = ctypes.create_string_buffer(room)
        self.ready, self.at, self.ended = b"", 0, False

    def __del__(self) -> None:
        if context := getattr(self, "context", None):
            self.library.ZSTD_freeDCtx(context)

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer at the end."""
        parts, left = [], size
        while left > 0:
            if self.at >= len(self.ready) and not self._unpack_more():
                break
            part = self.ready[self.at : self.at + left]
            self.at += len(part)
            left -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unpack_more(self) -> bool:
        """Unpack the next bytes; False at the end."""
        while True:
            if self.input.at >= self.input.size:
                self.packed = b"" if self.ended else bytes(self.source.read(1 << 17))
                self.ended = not self.packed
                place = ctypes.cast(ctypes.c_char_p(self.packed), ctypes.c_void_p)
                self.input = _Buffer(place, len(self.packed), 0)
            output = _Buffer(ctypes.cast(self.room, ctypes.c_void_p), len(self.room), 0)
            code = self.library.ZSTD_decompressStream(self.context, ctypes.byref(output), ctypes.byref(self.input))
            if self.library.ZSTD_isError(code):
                raise AuditError("it is damaged: zstd cannot unpack it")
            if code == 0 and self.single:
                self.ended, self.input = True, _Buffer(None, 0, 0)
            if output.at:
                self.ready, self.at = self.room.raw[: output.at], 0
                return True
            if self.ended:
                return False


def unpack_zstd(packed: bytes, *, limit: int) -> bytes:
    """The first `limit` bytes of one frame, whatever follows it; raises AuditError."""
    return ZstdReader(BytesIO(packed), room=min(limit, CHUNK), single=True).read(limit)

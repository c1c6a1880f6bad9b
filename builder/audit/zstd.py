"""zstd by the library that every Linux has for its own packages: Python has its own from 3.14 only.

Source: zstd.h of zstd 1.5, read 2026-11-23. The library refuses a window of more than 128 MiB by itself.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from io import BytesIO
from typing import Any

from .content import CHUNK, AuditError, ByteSource

LIBRARY = "libzstd.so.1"
MAGIC = b"\x28\xb5\x2f\xfd"


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer have the same three fields."""

    _fields_ = (("place", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t))


@lru_cache(maxsize=1)
def _load_library() -> Any:
    try:
        library = ctypes.CDLL(LIBRARY)
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
        library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)]
        library.ZSTD_decompressStream.restype = ctypes.c_size_t
        library.ZSTD_isError.argtypes = [ctypes.c_size_t]
        library.ZSTD_isError.restype = ctypes.c_uint
    except (OSError, AttributeError):
        raise AuditError(f"it is packed with zstd, and there is no {LIBRARY} on this machine") from None
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


def unpack(packed: bytes, *, limit: int) -> bytes:
    """The first `limit` bytes of one frame, whatever follows it; raises AuditError."""
    return ZstdReader(BytesIO(packed), room=min(limit, CHUNK), single=True).read(limit)

"""zstd for tables of a squashfs, by the library that mksquashfs is linked with: Python has its own only from 3.14."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .squashfs import BLOCK, SquashfsError

LIBRARY = "libzstd.so.1"


def load() -> Callable[[bytes], bytes]:
    """What unpacks a block; raises SquashfsError where the library is missing. Source: zstd.h of zstd 1.5."""
    try:
        library = ctypes.CDLL(LIBRARY)
        unpack, failed = library.ZSTD_decompress, library.ZSTD_isError
    except (OSError, AttributeError):
        raise SquashfsError(f"there is no {LIBRARY} on this machine") from None
    unpack.restype, unpack.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t] * 2
    failed.restype, failed.argtypes = ctypes.c_uint, [ctypes.c_size_t]
    room = ctypes.create_string_buffer(BLOCK)

    def block(packed: bytes) -> bytes:
        size = unpack(room, BLOCK, packed, len(packed))
        if failed(size):
            raise SquashfsError("a table is damaged: zstd cannot unpack it")
        return ctypes.string_at(room, size)

    return block

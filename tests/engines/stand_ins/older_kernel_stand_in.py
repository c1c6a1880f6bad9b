"""COMMAND...: runs it where the kernel seems to lack the system calls that Debian's PRoot 5.1.0 does not know.

PRoot translates the paths of calls that it knows. Of newer ones (statx, faccessat2, openat2) it would let the
untranslated path through; programs do without them on a kernel that answers ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

UNKNOWN = {"x86_64": (332, 437, 439), "aarch64": (291, 437, 439)}
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2  # linux/prctl.h
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06  # linux/filter.h: BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, ERRNO = 0x7FFF0000, 0x00050000  # linux/seccomp.h


def deny(numbers: tuple[int, ...]) -> None:
    """Make the calls answer ENOSYS, in this process and in all that it starts."""
    count = len(numbers)
    rows = [(LOAD_WORD, 0, 0, 0)]  # the number of the call is the first word
    rows += [(JUMP_EQUAL, count - index, 0, number) for index, number in enumerate(numbers)]
    rows += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    head = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((NO_NEW_PRIVILEGES, 1, 0), (SET_SECCOMP, FILTER, ctypes.c_char_p(head))):
        if libc.prctl(*words, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    deny(UNKNOWN[platform.machine()])
    os.execvp(sys.argv[1], sys.argv[1:])

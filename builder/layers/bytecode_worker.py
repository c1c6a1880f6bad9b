"""Writes .pyc files that are not checked against their source; runs on the image's own version of Python.

usage: python -I -S -B bytecode_worker.py FOLDER PREFIX WORKERS NICE OUT <list of paths, one a line

The bytes depend on the source and on PREFIX alone: no time, no path of this machine. A file that this version cannot
compile is skipped, as by pip. Each worker writes all its .pyc files one after the other into OUT/N.data, and a line for
each, "SIZE PATH-OF-THE-PYC", to OUT/N.index.
"""

from __future__ import annotations

import gc
import importlib.util
import marshal
import os
import sys
import warnings

TOKEN = 4  # bytes: a path's number, as the workers take it from a pipe


def compile_source(source: bytes, name: str) -> bytes:
    """Return the content of a .pyc file: hash-based and unchecked (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def work(paths: list[str], tokens: int, folder: str, prefix: str, out: str) -> None:
    """Compile the files whose numbers come out of a pipe, until it ends."""
    tag = sys.implementation.cache_tag or "none"
    with open(out + ".data", "wb", buffering=1 << 20) as data, open(out + ".index", "wb") as index:
        while True:
            token = os.read(tokens, TOKEN)
            if not token:
                return
            path = paths[int.from_bytes(token, "little")]
            try:
                # A file that was replaced by a link is not followed.
                number = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_NOFOLLOW)
                with open(number, "rb") as file:
                    made = compile_source(file.read(), prefix + "/" + path)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            data.write(made)
            parent, name = os.path.split(path)
            target = os.path.join(parent, "__pycache__", name[:-3] + "." + tag + ".pyc")
            index.write(b"%d %s\n" % (len(made), os.fsencode(target)))


def get_size(path: str) -> int:
    """Return the bytes of a file, 0 if it is missing."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def main() -> int:
    """Read paths and distribute them to child processes; return 1 if one of them failed."""
    folder, prefix, workers, nice, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    warnings.simplefilter("ignore")
    gc.disable()
    os.nice(nice)
    paths = os.fsdecode(sys.stdin.buffer.read()).splitlines()
    # The largest first, each to a free worker: all end at about the same time.
    paths.sort(key=lambda path: (-get_size(os.path.join(folder, path)), path))
    source, sink = os.pipe()
    children = []
    for number in range(workers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(sink)
                work(paths, source, folder, prefix, os.path.join(out, str(number)))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(source)
    try:
        with open(sink, "wb") as file:
            for number in range(len(paths)):
                file.write(number.to_bytes(TOKEN, "little"))
    except BrokenPipeError:
        pass  # all workers have ended: their exit codes follow
    codes = [os.waitpid(child, 0)[1] for child in children]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes .pyc files that need no check against their source; runs on the image's own version of Python.

usage: python -I -S -B compile_worker.py FOLDER PREFIX WORKERS <list of paths, one a line

The bytes depend on the source and on PREFIX alone: no time, no path of this machine. A file that is no Python of this
version stays without, as with pip. Prints the paths that were compiled.
"""

from __future__ import annotations

import gc
import importlib.util
import marshal
import os
import sys
import warnings


def compiled(source: bytes, name: str) -> bytes:
    """The content of the .pyc file: hash-based and unchecked (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def work(paths: list[str], folder: str, prefix: str) -> None:
    """Compile files, one after the other."""
    tag = sys.implementation.cache_tag or "none"
    for path in paths:
        full = os.path.join(folder, path)
        try:
            with open(full, "rb") as file:
                data = compiled(file.read(), prefix + "/" + path)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        parent, name = os.path.split(full)
        cache = os.path.join(parent, "__pycache__")
        try:
            os.mkdir(cache)
        except FileExistsError:
            pass
        target = os.path.join(cache, name[:-3] + "." + tag + ".pyc")
        try:
            os.unlink(target)  # one of the wheel's own may be a link into the installer's cache
        except FileNotFoundError:
            pass
        with open(target, "wb") as file:
            file.write(data)


def main() -> int:
    """Read paths, deal them out to children and wait for all."""
    folder, prefix, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    warnings.simplefilter("ignore")
    gc.disable()
    paths = sys.stdin.read().splitlines()
    # The largest first, dealt out in turn: all end at about the same time.
    paths.sort(key=lambda path: (-os.path.getsize(os.path.join(folder, path)), path))
    children = []
    for number in range(workers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(paths[number::workers], folder, prefix)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Give the files of an environment that was copied its new path: relocate.py FOLDER OLD...

FOLDER is the environment at its new path, each OLD a path that it had. Runs on any Python 3.6, without a package. In
texts every mention of an old path is replaced. In binary files only what conda has padded, which conda-meta lists:
nothing else there has room for another path.
"""

import json
import os
import py_compile
import re
import stat
import sys


def list_padded(folder):
    """The binary files in which conda has put a path, and the bytes that each path has room for."""
    found = {}
    records = os.path.join(folder, "conda-meta")
    for name in sorted(os.listdir(records)) if os.path.isdir(records) else []:
        if not name.endswith(".json"):
            continue
        with open(os.path.join(records, name), encoding="utf-8") as file:
            paths = (json.load(file).get("paths_data") or {}).get("paths") or []
        for one in paths:
            if one.get("file_mode") == "binary" and one.get("prefix_placeholder"):
                found[one["_path"]] = len(one["prefix_placeholder"].encode())
    return found


def replace_padded(content, old, new, room):
    """Replace a path in a binary file, whose bytes keep their places: zeros follow the text that has it."""
    longer = len(new) - len(old)

    def replace(match):
        rest, zeros = match[1], match[2]
        if longer > 0 and (len(new) > room or len(zeros) <= longer):
            raise SystemExit(f"recipe: error: a binary file has no room for the path {new.decode()}")
        return new + rest + zeros[: len(zeros) - longer] if longer > 0 else new + rest + zeros + b"\0" * -longer

    return re.sub(re.escape(old) + rb"((?:/[^\0]*)?)(\0+)", replace, content)


def relocate(content, olds, new, room):
    """The content of a file with the new path, None where it has no old one that can be replaced."""
    found = content
    for old in olds:
        if b"\0" not in content:
            found = re.sub(re.escape(old) + rb"(?![\w.-])", lambda _: new, found)
        elif room:
            found = replace_padded(found, old, new, room)
    return found if found != content else None


def write(path, content):
    """Write a file in its place: it keeps its mode, and its other names."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, mode | stat.S_IWUSR)
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()
    os.chmod(path, mode)


def relink(path, olds, new):
    """Give a link that leads to an old path the new one; return whether it does."""
    target = os.fsencode(os.readlink(path))
    for old in olds:
        if target == old or target.startswith(old + b"/"):
            os.unlink(path)
            os.symlink(new + target[len(old) :], path)
            return True
    return False


def main(folder, names):
    olds, new = [os.fsencode(name) for name in names], os.fsencode(folder)
    padded, changed = list_padded(folder), 0
    for top, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(top, name)
            if os.path.islink(path):
                changed += relink(path, olds, new)
                continue
            if name in folders or name.endswith(".pyc") or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                content = file.read()
            if not any(old in content for old in olds):
                continue
            found = relocate(content, olds, new, padded.get(os.path.relpath(path, folder), 0))
            if found is not None:
                write(path, found)
                changed += 1
                if name.endswith(".py") and os.path.isdir(os.path.join(top, "__pycache__")):
                    py_compile.compile(path)
    print(f"{changed} files had the path {' or '.join(names)}, and have {folder} now")


main(sys.argv[1], sys.argv[2:])

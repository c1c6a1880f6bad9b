"""Keeps what the base image brings: a snapshot before the installation, a comparison after it.

Runs inside the image while it is built; the standard library alone.
"""

import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
SNAPSHOT = HERE / "protected.json"
PIN = re.compile(r"[A-Za-z0-9._-]+==[^+\s;#]+\s*")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def state(distribution):
    """Version, and a digest over the path, size and time of every installed file."""
    digest = hashlib.sha256()
    for file in sorted(str(path) for path in distribution.files or ()):
        path = Path(distribution.locate_file(file))
        if path.suffix == ".pyc":
            continue
        try:
            stat = path.stat()
        except OSError:
            continue
        digest.update(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return [distribution.version, digest.hexdigest()]


def protected():
    return {normal(line) for line in (HERE / "protected.txt").read_text().split()}


def current():
    names = protected()
    found = {}
    for distribution in metadata.distributions():
        name = normal(distribution.metadata["Name"] or "")
        if name in names:
            found.setdefault(name, state(distribution))
    return found


def snapshot():
    SNAPSHOT.write_text(json.dumps(current(), sort_keys=True))
    # The image's own constraints (NGC has them since 25.03) hold for pip only; uv is given the plain pins among them.
    import os

    pins = []
    own = os.environ.get("PIP_CONSTRAINT", "")
    if own and Path(own).is_file():
        names = protected()
        for line in Path(own).read_text().splitlines():
            if PIN.fullmatch(line) and normal(line.partition("==")[0]) not in names:
                pins.append(line.strip())
    (HERE / "base-constraints.txt").write_text("".join(pin + "\n" for pin in pins))
    # The audit of the image asks nothing of what was here before.
    rows = {f"{normal(item.metadata['Name'] or '')}=={item.version}" for item in metadata.distributions()}
    (HERE / "base-packages.txt").write_text("".join(row + "\n" for row in sorted(rows)))


def check():
    before, after = json.loads(SNAPSHOT.read_text()), current()
    changed = [name for name in sorted(before) if before[name] != after.get(name)]
    for name in changed:
        now = after.get(name, ["nothing"])[0]
        was = before[name][0]
        print(f"recipe: error: {name} of the base image was replaced: {was} before, {now} now", file=sys.stderr)
    if changed:
        sys.exit(1)
    for name in sorted(before):
        print(f"recipe: kept the base image's {name} {before[name][0]}")


def python(wanted):
    found = ".".join(map(str, sys.version_info[:2]))
    if found != wanted:
        print(f"recipe: error: the recipe asks for Python {wanted}, the base image has {found}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    {"snapshot": snapshot, "check": check, "python": python}[sys.argv[1]](*sys.argv[2:])

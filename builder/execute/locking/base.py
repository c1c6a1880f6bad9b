"""The base image of a lock: its digest, and what only the image itself can answer (Python, glibc, its packages)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.execute.asking import capture, which
from builder.execute.digest import sha256_of
from builder.execute.locking.provided import plain
from builder.execute.locking.registry import base_digest
from builder.execute.locking.session import Session
from builder.layering.bounded import parse_json
from builder.model.lock import BaseLock
from builder.model.site import BaseImage
from builder.resolve.asked import FAMILY

SECONDS = 120.0  # for an image that has to be mounted first
# One line of JSON: versions and packages of the Python that `python3` is in the image, and the C library's.
QUESTION = """
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
python3 -I - "$glibc" <<'END'
import json, platform, sys
from importlib import metadata
found = {str(item.metadata["Name"]): item.version for item in metadata.distributions() if item.metadata["Name"]}
print("recipe:" + json.dumps({"glibc": sys.argv[1], "python": platform.python_version(), "provides": found}))
END
[ "$?" = 0 ] || printf 'recipe:{"glibc": "%s"}\\n' "$glibc"
"""


def lock_base(
    image: BaseImage, *, own: bool, name: str, packages: bool, runtimes: tuple[str, ...], session: Session
) -> BaseLock:
    """Find the digest; ask a local image for what its site's file does not say, and for its `packages`.

    `own` says that the site or the user names its registry, and not the recipe.
    """
    glibc, python = image.glibc or "", image.python or ""
    known = {key: value for key, value in image.provides.items() if value != "unknown"} if packages else {}
    if "://" in image.reference:
        digest, why = base_digest(image.reference, own=own, session=session)
        return BaseLock(reference=name, digest=digest, why=why, python=python, glibc=glibc, provides=plain(known))
    path = Path(image.reference)
    if not path.is_absolute():
        return BaseLock(reference=name, why="it is no image that has a name", python=python, glibc=glibc)
    try:
        size, digest = path.stat().st_size, f"sha256:{sha256_of(path)}"
    except OSError as error:
        why = f"it cannot be read on this machine: {(error.strerror or str(error)).lower()}"
        return BaseLock(reference=name, why=why, python=python, glibc=glibc, provides=plain(known))
    answer = {} if glibc and python and not packages else _ask(path, runtimes=runtimes, session=session)
    return BaseLock(
        reference=name,
        digest=digest,
        size=size,
        python=_text(answer, "python") or python,
        glibc=_text(answer, "glibc").removeprefix("glibc").strip() or glibc,
        provides=plain({**known, **_packages(answer)}) if packages else {},
    )


def _ask(path: Path, *, runtimes: tuple[str, ...], session: Session) -> Mapping[str, object]:
    """Run the question in the image; nothing where no engine is here, or the image has no such Python."""
    runtime = next((found for name in runtimes if (found := which(name, env=session.environment))), None)
    if runtime is None:
        return {}
    argv = [str(runtime), "exec", "--cleanenv", "--contain", str(path), "sh", "-c", QUESTION]
    answer = capture(argv, env=session.environment, timeout=SECONDS)
    lines = answer.text.splitlines() if answer.exit_code == 0 else []
    line = next((line for line in lines if line.startswith("recipe:{")), "")
    try:
        found = parse_json(line.removeprefix("recipe:"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(answer: Mapping[str, object], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""


def _packages(answer: Mapping[str, object]) -> dict[str, str]:
    found = answer.get("provides")
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def keeps_torch(base: BaseLock) -> bool:
    """Whether an image's own packages are known beyond its torch."""
    return bool(set(base.provides) - set(FAMILY))

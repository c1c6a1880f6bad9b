"""The base image in a lock: its digest, its glibc, its Python, and the packages that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.layers.base_facts import read_base_programs
from builder.layers.reference import DIGEST, parse_reference
from builder.layers.registry import RegistryError, fetch_manifest_digest, find_login
from builder.layers.wheels import is_distribution
from builder.lock.session import Session
from builder.model.lock import BaseLock
from builder.model.site import BaseImage
from builder.resolve.requested import FAMILY
from builder.sif.bounded import hash_file, parse_json
from builder.sif.errors import LayeringError
from builder.system.process import capture, find_program


def normalize_packages(provided: Mapping[str, str]) -> dict[str, str]:
    """Return names and versions in normal form, without invalid ones."""
    found = {}
    for name, version in provided.items():
        if not is_distribution(name, version):
            continue
        try:
            found[str(canonicalize_name(name))] = str(Version(version))
        except InvalidVersion:
            continue
    return found


SECONDS = 120.0  # for an image that is mounted first
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
    """Find the digest; read from a local image what its site's file does not have, or ask its Python for `packages`.

    `own` is true if the site or the user names its registry, and not the recipe.
    """
    glibc, python = image.glibc or "", image.python or ""
    known = {key: value for key, value in image.provides.items() if value != "unknown"} if packages else {}
    if "://" in image.reference:
        digest, why = _read_base_digest(image.reference, own=own, session=session)
        return BaseLock(
            reference=name, digest=digest, why=why, python=python, glibc=glibc, provides=normalize_packages(known)
        )
    path = Path(image.reference)
    if not path.is_absolute():
        return BaseLock(reference=name, why="it is not an image with a name", python=python, glibc=glibc)
    try:
        size, digest = path.stat().st_size, f"sha256:{hash_file(path)}"
    except OSError as error:
        why = f"it cannot be read on this machine: {(error.strerror or str(error)).lower()}"
        return BaseLock(reference=name, why=why, python=python, glibc=glibc, provides=normalize_packages(known))
    answer: Mapping[str, object] = {}
    if packages:
        answer = _ask(path, runtimes=runtimes, session=session)
    elif not (glibc and python):
        answer = _read_programs(path)
    return BaseLock(
        reference=name,
        digest=digest,
        size=size,
        python=_read_text(answer, "python") or python,
        glibc=_read_text(answer, "glibc").removeprefix("glibc").strip() or glibc,
        provides=normalize_packages({**known, **_read_packages(answer)}) if packages else {},
    )


def _read_base_digest(reference: str, *, own: bool, session: Session) -> tuple[str, str]:
    """Return the digest of an image's manifest, or "" and the reason why it is unknown; nothing is downloaded."""
    scheme, tag = reference.partition("://")[0], parse_reference(reference)[2]
    if DIGEST.fullmatch(tag):
        return tag, ""
    if scheme not in ("docker", "oras"):
        return "", f"{scheme}:// images have no digest that a registry could give"
    if session.offline:
        return "", "the registry was not asked (--offline)"
    logins = partial(find_login, environment=session.environment, own=own)
    try:
        return fetch_manifest_digest(reference, logins=logins, environment=session.environment), ""
    except RegistryError as error:
        return "", str(error)


def _read_programs(path: Path) -> Mapping[str, object]:
    """Read the Python (X.Y) and the glibc from the image's files, as a build of layers does: no engine is needed."""
    with suppress(LayeringError):
        facts = read_base_programs(path)
        return {"python": facts.minor, "glibc": facts.glibc}
    return {}


def _ask(path: Path, *, runtimes: tuple[str, ...], session: Session) -> Mapping[str, object]:
    """Run the question in the image; return nothing without an engine or a Python in the image."""
    runtime = next((found for name in runtimes if (found := find_program(name, env=session.environment))), None)
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


def _read_text(answer: Mapping[str, object], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""


def _read_packages(answer: Mapping[str, object]) -> dict[str, str]:
    found = answer.get("provides")
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def has_known_packages(base: BaseLock) -> bool:
    """Whether an image's own packages are known, not only its torch."""
    return bool(set(base.provides) - set(FAMILY))

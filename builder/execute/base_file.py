"""Whether the base image of a plan can be one: asked before anything is written, and without a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError, UnsupportedError
from builder.model.plan import Plan
from builder.model.text import sanitize

# A name in a registry, by the grammar of the distribution project's module "reference".
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
SPEC = "layers.json"
_CHOOSE = "give the path of a SIF image, or docker://NAME:TAG"


def check_base(plan: Plan, *, at: Location, own: bool, environment: Mapping[str, str]) -> None:
    """Raise for a base image that no engine can use: ConfigError for the user's `own`, ToolError for a site's.

    Opens regular files only. The layers backend needs a SIF with a squashfs partition; what it builds without a server
    needs its base image in the cache. A SIF whose Python or glibc is not what the plan needs is an UnsupportedError.
    """
    if plan.base.startswith("/"):
        wrong = _find_file_fault(Path(plan.base), layers=plan.backend == "layers")
        code, fix = "base-unreadable", _CHOOSE
    else:
        wrong, code, fix = _name_fault(plan.base), "base-reference", "check the name: docker://HOST/NAME:TAG"
    shown = sanitize(plan.base, limit=400)
    if wrong:
        message = f"the base image '{shown}' cannot be used: {wrong}"
        if own:
            raise ConfigError(Finding(code=code, message=message, at=at, fix=fix))
        raise ToolError(Finding(code=code, message=message, fix="name another base image with --base"))
    if plan.base.startswith("/"):
        _check_programs(plan, at=at if own else None)
    if plan.backend == "layers" and environment.get("RECIPE_OFFLINE") and not plan.base.startswith("/"):
        _check_cached(plan, environment=environment)


def _find_file_fault(path: Path, *, layers: bool) -> str:
    """What is wrong with a base image of this machine, "" if nothing is."""
    from builder.inspect.image import check_image
    from builder.sif.bounded import open_file
    from builder.sif.sif import MAGIC, SifError, read_sif

    if layers and path.is_dir():
        return "it is a folder, and the backend 'layers' needs a SIF image"
    try:
        check_image(path)
        if path.is_dir():
            return ""
        with open_file(path) as file:
            head = file.read(42)
        if layers or head[32:] == MAGIC:
            image = read_sif(path)
            if layers:
                _ = image.system
    except BuilderError as error:
        _, split, found = error.findings[0].message.partition("' is ")
        return f"it is {found}" if split else error.findings[0].message
    except SifError as error:
        return str(error)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _check_programs(plan: Plan, *, at: Location | None) -> None:
    """Raise UnsupportedError where the Python or the glibc of a base image stops the build later; only of a SIF."""
    own = {file.path.removeprefix("image/"): file.text for file in plan.files if file.path.startswith("image/")}
    wanted, requirements = own.get("python-version", "").strip(), any(name.startswith("require") for name in own)
    layers = plan.backend == "layers" and requirements and own.get("place", "").strip() == "venv"
    if not (wanted or layers) or (plan.backend == "layers" and not requirements):
        return
    from builder.layers.base_facts import read_base_programs
    from builder.layers.wheels import name_platform
    from builder.sif.errors import LayeringError

    try:
        found = read_base_programs(Path(plan.base))
    except LayeringError:
        return  # an archive, a folder, or a file system that only an engine reads
    # The distribution's packages come before Python is looked for, but for layers.
    if wanted and found.minor not in ("", wanted) and (layers or "python" not in own.get("system.txt", "")):
        message = f"the recipe requires Python {wanted}, the base image has {found.minor}"
        fix = f"write python={found.minor}, or use a base image with Python {wanted}"
        raise UnsupportedError(Finding(code="base-python", message=message, at=at, fix=fix))
    if layers and found.minor:
        try:
            name_platform(found.machine, found.glibc)
        except LayeringError as error:
            finding = Finding(code="base-glibc", message=str(error), at=at, fix=error.fix)
            raise UnsupportedError(finding) from None


def _name_fault(reference: str) -> str:
    """What is wrong with the name of an image in a registry, "" if nothing is."""
    from builder.layers.reference import parse_reference

    scheme, _, name = reference.partition("://")
    if scheme == "docker" and not _NAME.fullmatch(parse_reference(reference)[1]):
        return "a name in a registry has small letters, digits, '.', '_' and '-' between them only"
    if scheme == "oras":
        path = name.partition("/")[2].partition("@")[0].partition(":")[0]
        if not _NAME.fullmatch(path):
            return "oras:// needs a host and a name of small letters, as in oras://HOST/NAME:TAG"
    return ""


def _check_cached(plan: Plan, *, environment: Mapping[str, str]) -> None:
    """Raise ToolError where no server may be asked and the base image was not fetched before; makes nothing."""
    from builder.layers.cache import KINDS, compute_key
    from builder.layers.cache_folders import LAYERS, find_cache_folder
    from builder.layers.spec import FIX, is_offline
    from builder.sif.bounded import parse_json, read_json
    from builder.sif.errors import LayeringError

    text = next((file.text for file in plan.files if file.path.endswith(SPEC)), "")
    if not (text and is_offline(environment)):
        return
    reference = parse_json(text)["base"]  # with the digest of a lock
    try:
        folder = find_cache_folder(environment) / LAYERS
    except LayeringError:
        return  # a cache without a place is refused with the program's other needs
    with suppress(OSError, ValueError, KeyError, TypeError):
        key = read_json(folder / "known" / f"{compute_key(['reference', reference])}.json")["fact"]
        if (folder / "bases" / f"{key}{KINDS['bases']}").is_file():
            return
    message = f"the base image {sanitize(reference, limit=400)} was not fetched before, and no server is asked"
    raise ToolError(Finding(code="no-network", message=message, fix=FIX))

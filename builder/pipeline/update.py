"""recipe build --update: an installation of tykky that is there gets what was added to its environment file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from builder.model.finding import ConfigError, Finding, Location
from builder.model.installation import LIMIT, RECORD, InstalledFile, from_json, list_obstacles
from builder.model.plan import Plan
from builder.model.text import exists, sanitize
from builder.pipeline.request import Build, BuildRequest, Builds
from builder.sif.bounded import read_file

ANEW = "build it from nothing with --force in place of --update"


def apply_update(request: BuildRequest, builds: Builds) -> BuildRequest:
    """The request of a build that changes the installation that is there; raises ConfigError where that cannot be.

    Where nothing is there, or nothing has changed, the request stays as it is.
    """
    if not request.single:
        fix = "name one site and one file"
        raise ConfigError(Finding(code="usage", message="--update is for one installation", fix=fix))
    for build in builds.values():
        return _apply(request, build)
    return request


def _apply(request: BuildRequest, build: Build) -> BuildRequest:
    new = _find_record(build.plan)
    if new is None:
        able = "tykky" in build.site.build.backends
        message = "--update is for installations of tykky, and this build makes an image"
        fix = "give --backend tykky, or leave --update out" if able else "leave --update out"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    if not exists(build.image):
        return request
    old = _read_record(build.image)
    if old is None:
        message = f"'{sanitize(str(build.image), limit=400)}' does not say what it was made of"
        raise _make_error("update-unknown", message, build.image)
    if old == new:
        return request
    if obstacles := list(list_obstacles(old, new)):
        said = "; ".join(sanitize(one, limit=400) for one in obstacles)
        message = f"'{sanitize(build.image.name)}' cannot be updated: {said}"
        raise _make_error("update-refused", message, build.image)
    variables = {"RECIPE_UPDATE": str(build.image.resolve()), "RECIPE_RAN": str(len(old.run))}
    options = request.options
    return replace(request, options=replace(options, force=True, environment={**options.environment, **variables}))


def _find_record(plan: Plan) -> InstalledFile | None:
    return next((from_json(file.text.encode()) for file in plan.files if file.path == RECORD), None)


def _read_record(image: Path) -> InstalledFile | None:
    """The record of an installation, None where it has none that can be read."""
    with suppress(OSError, ValueError):
        return from_json(read_file(image / "share" / RECORD, limit=LIMIT))
    return None


def _make_error(code: str, message: str, image: Path) -> ConfigError:
    at = Location(file=sanitize(str(image), limit=400))
    return ConfigError(Finding(code=code, message=message, at=at, fix=ANEW))

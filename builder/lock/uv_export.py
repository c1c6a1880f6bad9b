"""A lock of uv as a pylock, which uv itself writes: without a network, and without running code of the project."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from builder.layers.uv import make_uv_environment, make_uv_settings
from builder.lock.session import Session, find_machine_error, find_uv_program, format_output_tail
from builder.model.finding import ConfigError, Finding, Location
from builder.model.recipe import InputChoice
from builder.model.secrets import ANY_USER
from builder.model.text import exists, sanitize
from builder.parse.yaml import read_text

PROJECT = "pyproject.toml"
SIZE = 16 * 1024 * 1024  # bytes, of the lock and of what is made of it
# The project and the members of its workspace are code of the user's own: as with a pyproject.toml, no image has them.
# Groups are taken where they are named.
WORDS = ("--frozen", "--offline", "--no-emit-workspace", "--no-default-groups", "--no-header", "--no-annotate")


def export_lock(path: Path, *, choice: InputChoice, environment: Mapping[str, str]) -> str:
    """Return the pylock of a uv.lock; raises ConfigError for what uv cannot read, ToolError without uv."""
    at = Location(file=str(path))
    read_text(path, what="lock", limit=SIZE)
    if not exists(path.with_name(PROJECT)):
        message = f"the {PROJECT} of '{path}' is missing next to it: uv reads both"
        fix = "copy it there, or run `uv export --format pylock.toml -o pylock.toml` where it is, and give that file"
        raise ConfigError(Finding(code="uv-lock", message=message, at=at, fix=fix))
    from builder.system.scratch import make_work_folder

    with make_work_folder("recipe-export-") as work:
        session = Session(environment=environment, work=work, cache=work, offline=True)
        output = work / "pylock.toml"
        # uv asks for an interpreter, and runs nothing with it: ours is sufficient.
        own = make_uv_environment(make_uv_settings(environment, cache=work, offline=True))
        own |= {"UV_PYTHON": sys.executable, "UV_CACHE_DIR": str(work / "cache")}
        argv = [find_uv_program(environment), "export", "--quiet", "--format", "pylock.toml", *WORDS]
        argv += [word for name in choice.extras for word in ("--extra", name)]
        argv += [word for name in choice.groups for word in ("--group", name)]
        argv += ["--project", str(path.parent.resolve()), "--output-file", str(output)]
        finished = session.run(argv, cwd=work, env=own, name="uv")
        if finished.exit_code == 0 and output.is_file():
            return read_text(output, what="lock", name=str(path), limit=SIZE)
        text = ANY_USER.sub("//", format_output_tail(finished)).removeprefix("error: ")
        if stopped := find_machine_error(finished, text, program="uv", at=at):
            raise stopped
    message = f"uv cannot read '{path}': {sanitize(text, limit=300)}"
    fix = f"run `uv lock` where its {PROJECT} is, or take back what has changed the lock"
    if "is not defined" in text:
        fix = f"name one that the {PROJECT} has with --extra or --group, or leave it out"
    raise ConfigError(Finding(code="uv-lock", message=message, at=at, fix=fix))

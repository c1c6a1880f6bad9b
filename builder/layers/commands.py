"""The command line of the stand-alone program."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..sif.errors import LayeringError, NotAsPlannedError, describe_written_place, show, translate_error

NOT_AS_PLANNED = 6  # exit code


def main(arguments: Sequence[str]) -> int:
    """Run a command; return 0 if it succeeded, 6 if an image is not what was planned, else 1."""
    parser = argparse.ArgumentParser(prog="layering", description="Makes a SIF image out of layers.")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make the image that layers.json describes")
    build.add_argument("spec", type=Path, metavar="layers.json")
    build.add_argument("--output", type=Path, required=True)
    build.add_argument("--runtime", required=True, help="apptainer or singularity")
    fetch = commands.add_parser("fetch", help="have all that the image of layers.json is made of in the cache")
    fetch.add_argument("spec", type=Path, metavar="layers.json")
    fetch.add_argument("--runtime", required=True, help="apptainer or singularity")
    wheels = commands.add_parser("offer", help="download the wheels that a build in a container asks for")
    wheels.add_argument("folder", type=Path, metavar="image")
    for one in (build, fetch, wheels):
        one.add_argument(
            "--given", type=Path, required=one is wheels, help="the folder with the pipes to the container"
        )
    when = commands.add_parser("time", help="print the time that all new files of an image get, and its date")
    when.add_argument("base", help="the base image as in the engine's command, or an archive of `docker save`")
    when.add_argument("--settle", action="store_true", help="then settle the image that standard input names")
    audit = commands.add_parser("audit", help="read which GPUs the packages of a new image can use")
    audit.add_argument("plan", type=Path, metavar="audit.json")
    audit.add_argument("image", type=Path)
    labels = commands.add_parser("labels", help="write the labels.json of an image that is made of an archive")
    labels.add_argument("archive", type=Path)
    labels.add_argument("output", type=Path)
    labels.add_argument("--time", type=int, required=True)
    build.epilog = "Options after -- are passed to the runtime for steps in a container: --bind SOURCE:TARGET ..."
    own = list(arguments)
    cut = own.index("--") if "--" in own else len(own)
    chosen = parser.parse_args(own[:cut])
    try:
        return COMMANDS[chosen.command](chosen, own[cut + 1 :])
    except (LayeringError, OSError) as error:
        show(error if isinstance(error, LayeringError) else translate_error(error))
        if chosen.command in ("build", "fetch") and not isinstance(error, NotAsPlannedError):
            _show_place(error, output=getattr(chosen, "output", None))
        if isinstance(error, NotAsPlannedError):
            return NOT_AS_PLANNED
    return 1


def _show_place(error: LayeringError | OSError, *, output: Path | None) -> None:
    """Print which disk or whose permissions failed: the explanation of the failure needs it."""
    from .private_folders import find_cache_folder

    cache, temporary = find_cache_folder(os.environ), os.environ.get("RECIPE_TMPDIR", "")
    place = describe_written_place(error, cache=cache, output=output, temporary=temporary)
    print(place, file=sys.stderr, flush=True)


def _build(chosen: argparse.Namespace, binds: Sequence[str]) -> int:
    from .image_build import build
    from .private_folders import find_cache_folder
    from .spec import read_spec

    spec = read_spec(chosen.spec)
    gc.disable()  # tens of thousands of table entries live to the end: traversing them takes a third of a join
    umask = os.umask(0o022)  # the content does not depend on the user's
    build(
        spec,
        chosen.output,
        runtime=chosen.runtime,
        binds=binds,
        given=chosen.given,
        cache=find_cache_folder(os.environ),
        environment=os.environ,
        umask=umask,
    )
    return 0


def _fetch(chosen: argparse.Namespace, binds: Sequence[str]) -> int:
    from .image_build import fetch
    from .private_folders import find_cache_folder
    from .spec import read_spec

    spec = read_spec(chosen.spec)
    os.umask(0o022)
    fetch(
        spec,
        runtime=chosen.runtime,
        binds=binds,
        given=chosen.given,
        cache=find_cache_folder(os.environ),
        environment=os.environ,
    )
    return 0


def _offer(chosen: argparse.Namespace, _: Sequence[str]) -> int:
    from .private_folders import find_cache_folder
    from .wheel_server import serve_wheels

    os.umask(0o022)  # uv unpacks here what the image gets
    serve_wheels(chosen.folder, given=chosen.given, cache=find_cache_folder(os.environ), environment=os.environ)
    return 0


def _time(chosen: argparse.Namespace, _: Sequence[str]) -> int:
    from ..sif.normalise import choose_time, format_date, normalize_image

    found = choose_time(chosen.base, environment=os.environ)
    if found is None:
        return 0
    print(found, format_date(found), flush=True)
    # An engine works meanwhile; if it fails, no image is named.
    if chosen.settle and (name := sys.stdin.readline()):
        normalize_image(Path(name.removesuffix("\n")), time=found)
    return 0


def _audit(chosen: argparse.Namespace, _: Sequence[str]) -> int:
    from ..audit.planned import judge_image, read_audit_plan

    plan = read_audit_plan(chosen.plan)
    message, fix = judge_image(plan, chosen.image) if plan is not None else ("", "")
    if message:
        raise NotAsPlannedError(message, fix=fix)
    return 0


def _write_labels(chosen: argparse.Namespace, _: Sequence[str]) -> int:
    from ..sif.normalise import make_labels_json

    chosen.output.write_bytes(make_labels_json(chosen.archive, time=chosen.time))
    return 0


COMMANDS = {"build": _build, "fetch": _fetch, "offer": _offer, "audit": _audit, "time": _time, "labels": _write_labels}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Read a plan folder, a results folder, or the plan folder of an image for a report."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

from builder.inspect.attestations import name_attestations
from builder.inspect.origin import is_image_of, read_image_report, read_plan_digest
from builder.model.finding import ConfigError, Finding, Location
from builder.model.result_documents import ResultDocuments, assemble_results
from builder.model.results import Artifact, Results, SbomPackage, Stage
from builder.model.secrets import Mask
from builder.model.text import exists, is_plain_path, to_dict, to_integer, to_list, to_text
from builder.sif import tree
from builder.sif.bounded import BoundsError, read_json
from builder.system.layout import (
    JOBS,
    PLAN_FILE,
    README_FILE,
    REPORT_FILE,
    RESULTS,
    SMOKE_FILE,
    SUBMITTED_FILE,
    VERDICT_FILE,
    plan_folder,
)
from builder.system.step_output import Lines

SIZE_LIMIT = 64 * 1024 * 1024  # bytes; a thousand ranks leave two million
SCHEMA = 1
_RANK = re.compile(r".*\.json\.rank\d+\.json")
_FIX = "give a report.json, a plan folder, a results folder, or an image with its plan folder next to it"


def read_results(path: Path) -> Results:
    """Read everything that was measured at a path; raises ConfigError with what is damaged or missing."""
    if not exists(path) and not _was_not_built(path):
        from builder.parse.yaml import suggest_path

        fix = suggest_path(path, other=f"check the path; {_FIX}")
        raise _fault("report-missing", f"'{path}' does not exist", at=path, fix=fix)
    found = ResultDocuments(name=path.resolve().name or str(path), source=str(path))
    folder = _read_path(found, path)
    if not (found.report or found.list_workload_results() or found.verdicts or found.jobs):
        message = f"nothing has been measured in '{path}' yet"
        fix = "build the image, or run the folder's smoke scripts; " + _FIX
        raise _fault("report-empty", message, at=path, fix=fix)
    results = assemble_results(found)
    return results if folder is None else add_artifacts(results, folder, report=found.report, named=path)


def _read_path(found: ResultDocuments, path: Path) -> Path | None:
    """Read what a path names; returns the plan folder it is or belongs to, None where there is none."""
    folder = path
    if path.is_dir() and not _is_image(path):
        _read_folder(found, path)
    elif path.suffix == ".json":
        _read_file(found, path)
        folder = path.parent
    elif path.name and plan_folder(path).is_dir():
        folder = plan_folder(path)
        _read_folder(found, folder)
        report, kept = read_image_report(folder, path)
        if kept:  # a later build was stopped or has failed, and the image is still there
            found.report = report
            if report.get("plan") != read_plan_digest(folder):
                found.plan = _read_target(report)
    elif path.suffix in (".sif", ".tar", ".sqfs"):
        message = f"the image '{path}' has no plan folder next to it ('{plan_folder(path)}')"
        raise _fault("report-missing", message, at=path)
    else:
        _read_file(found, path)
        folder = path.parent
    return folder if (folder / PLAN_FILE).is_file() else None


def _read_target(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a report knows of its plan: the folder holds that of a later build."""
    words = to_text(report.get("target"), limit=400).rsplit(".", 2)
    return dict(zip(("recipe", "site", "backend"), words, strict=False)) if len(words) == 3 else {}


def _was_not_built(path: Path) -> bool:
    """Whether a path is that of an image whose build failed: its plan folder is there."""
    return path.name not in ("", "..") and exists(plan_folder(path))


def _is_image(path: Path) -> bool:
    """Whether a folder is an image (tykky's) with its plan folder next to it."""
    ours = (path / PLAN_FILE).is_file() or (path / REPORT_FILE).is_file()
    return not ours and path.name not in ("", "..") and plan_folder(path).is_dir()


def _read_file(found: ResultDocuments, path: Path) -> None:
    content = _read_document(path)
    if "workload" in content:
        found.shapes[path.resolve().parent.name] = {to_text(content["workload"], limit=60): content}
    elif _is_report(content):
        found.report = content
        found.name = path.resolve().parent.name
        if (path.parent / PLAN_FILE).is_file():
            _read_folder(found, path.parent)
    else:
        raise _fault("report-foreign", f"'{path}' is neither a report of a build nor a result of a workload", at=path)


def _read_folder(found: ResultDocuments, folder: Path) -> None:
    if (folder / REPORT_FILE).is_file():
        found.report = _read_document(folder / REPORT_FILE)
        if not _is_report(found.report):
            message = f"'{folder / REPORT_FILE}' is not a report of a build"
            raise _fault("report-foreign", message, at=folder / REPORT_FILE)
    if (folder / PLAN_FILE).is_file():
        found.plan = _read_document(folder / PLAN_FILE)
        if not found.report:
            _read_smoke(found, folder)
        _read_shapes(found, folder / RESULTS)
        _read_jobs(found, folder / JOBS)
    elif not found.report:
        _read_shape(found, folder)
        _read_shapes(found, folder / RESULTS if (folder / RESULTS).is_dir() else folder)
    if not (found.report or found.plan or found.shapes or found.verdicts):
        raise _fault("report-foreign", f"the folder '{folder}' holds no report, no plan and no results", at=folder)


def _read_smoke(found: ResultDocuments, folder: Path) -> None:
    """Read the results of a smoke script that was run by hand in the plan folder."""
    for path in sorted(folder.glob("smoke-*.json")):
        matched = SMOKE_FILE.fullmatch(path.name)
        content = _read_or_note(found, path)
        if matched is not None:
            found.shapes.setdefault("", {})[matched["name"]] = content


def _read_shapes(found: ResultDocuments, results: Path) -> None:
    if results.is_dir():
        for folder in sorted(results.iterdir()):
            if folder.is_dir():
                _read_shape(found, folder)


def _read_shape(found: ResultDocuments, folder: Path) -> None:
    """Read one shape's results: a file for each workload, and the verdict over them."""
    shape = folder.resolve().name
    for path in _json_files(folder):
        if path.name == VERDICT_FILE:
            verdict = _read_or_note(found, path)
            found.verdicts[shape] = verdict if verdict is not None else {"reason": "its verdict cannot be read"}
            continue
        content = _read_or_note(found, path)
        if content is None or "workload" in content:
            found.shapes.setdefault(shape, {})[path.name.removesuffix(".json")] = content


def _read_jobs(found: ResultDocuments, folder: Path) -> None:
    for path in _json_files(folder):
        content = _read_or_note(found, path)
        if content is None:
            continue
        if path.name == SUBMITTED_FILE:
            found.submitted = content
        elif "job" in content:
            found.jobs.append(content)


def _json_files(folder: Path) -> Iterator[Path]:
    """Yield the JSON files of a folder without the ranks' own records and drafts."""
    for path in sorted(folder.glob("*.json")):
        if path.is_file() and not path.name.startswith(".") and not _RANK.fullmatch(path.name):
            yield path


def _is_report(content: dict[str, Any]) -> bool:
    return content.get("schema") == SCHEMA and isinstance(content.get("target"), str) and "steps" in content


def _read_or_note(found: ResultDocuments, path: Path) -> dict[str, Any] | None:
    """Read one file of many; None and a note where it is damaged."""
    try:
        return _read_document(path)
    except ConfigError as error:
        found.damaged.append(error.findings[0].message)
        return None


def _read_document(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object; raises ConfigError."""
    try:
        content = read_json(path, limit=SIZE_LIMIT, finite=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"'{path}' cannot be read: {reason}"
        raise _fault("report-unreadable", message, at=path, fix="check its permissions") from None
    except BoundsError as error:
        raise _fault("report-large", f"'{path}' cannot be read: {error}", at=path) from None
    except UnicodeDecodeError:
        raise _fault("report-damaged", f"'{path}' is not UTF-8 text", at=path) from None
    except RecursionError:
        raise _fault("report-damaged", f"'{path}' is nested too deep", at=path) from None
    except json.JSONDecodeError as error:
        message = f"'{path}' is not JSON, or was cut: {error.msg.lower()}"
        raise _fault(
            "report-damaged", message, at=path, line=error.lineno, fix="build or test again; " + _FIX
        ) from None
    except ValueError as error:
        raise _fault("report-damaged", f"'{path}' cannot be read: {to_text(str(error), limit=80)}", at=path) from None
    if not isinstance(content, dict):
        raise _fault("report-foreign", f"'{path}' is not a JSON object", at=path)
    return content


def _fault(code: str, message: str, *, at: Path, line: int | None = None, fix: str = _FIX) -> ConfigError:
    return ConfigError(Finding(code=code, message=message, at=Location(file=str(at), line=line), fix=fix))


TAIL_LINES = 20
TAIL_BYTES = 64 * 1024
LINE_LIMIT = 300  # characters
SBOM_BYTES = 64 * 1024 * 1024
PACKAGE_LIMIT = 20_000
FIRST_KINDS = ("pypi", "conda")  # what the recipe names is among these


def add_artifacts(results: Results, folder: Path, *, report: Mapping[str, Any], named: Path) -> Results:
    """Add what is in a plan folder and next to it: the image, the files to link to, logs' ends, installed packages.

    `report` is the report of the build, `named` the path that the user gave.
    """
    image = find_image(folder, results.image)
    is_earlier = not results.is_built and not results.image
    sbom, provenance = name_attestations(image) if image is not None else (None, None)
    titled = [
        ("SBOM", sbom),
        ("provenance", provenance),
        ("plan", _below(folder, PLAN_FILE)),
        ("commands without recipe", _below(folder, README_FILE)),
        ("report as JSON", _below(folder, REPORT_FILE)),
        *((f"log of {stage.name}", _below(folder, stage.log)) for stage in results.stages if stage.log),
    ]
    found = [Artifact(title=title, path=str(path)) for title, path in titled if path is not None and _is_regular(path)]
    mask = Mask(os.environ)
    return replace(
        results,
        image_path=str(image) if image is not None else "",
        image_now=describe_image_now(report, image, folder=folder, named=named),
        earlier_image=_find_build_time(image, provenance) if image is not None and is_earlier else "",
        artifacts=tuple(found),
        stages=tuple(_with_tail(stage, folder, mask=mask) for stage in results.stages),
        installed=tuple(read_installed_packages(sbom)) if sbom is not None else (),
    )


def find_image(folder: Path, recorded: str) -> Path | None:
    """Find the image that a plan folder belongs to, None where there is none next to it.

    The recorded path may be another machine's, or a stranger's: only its last part counts.
    """
    folder = folder.absolute()
    stem = folder.name.removesuffix(".plan")
    for name in (Path(recorded).name, f"{stem}.sif", stem):
        if name and name != ".." and plan_folder(folder.with_name(name)) == folder:
            path = folder.with_name(name)
            with suppress(OSError):
                if path.is_file() or path.is_dir():
                    return path
    return None


def describe_image_now(report: Mapping[str, Any], image: Path | None, *, folder: Path, named: Path) -> str:
    """What is wrong with the image that a report says was built: it is missing, or another; "" where nothing is.

    A copy of a plan folder has no image next to it, and misses none.
    """
    recorded = Path(to_text(report.get("image")))
    if not recorded.name:
        return ""
    if image is None:
        in_place = plan_folder(recorded) == folder.resolve() or plan_folder(named.absolute()) == folder.absolute()
        return "is missing now" if in_place else ""
    if not image.is_file():
        return ""  # a folder of tykky, which has no digest
    if (built := to_integer(report.get("image_bytes"))) is None:
        return ""
    found = image.stat().st_size
    if found != built:
        return f"is not the one of this report: it has {found} bytes now, and had {built}"
    try:
        return "" if is_image_of(report, image) else "is not the one of this report: its SHA-256 is another"
    except KeyError:
        return ""  # a report of an earlier version
    except OSError as error:
        return f"cannot be read now: {(error.strerror or str(error)).lower()}"


def _find_build_time(image: Path, provenance: Path | None) -> str:
    """When an image was built: as its provenance says, else the time of its file."""
    with suppress(OSError, ValueError, RecursionError):
        content = to_dict(read_json(provenance)) if provenance is not None else {}
        details = to_dict(to_dict(content.get("predicate")).get("runDetails"))
        if found := to_text(to_dict(details.get("metadata")).get("startedOn"), limit=40):
            return found
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(image.lstat().st_mtime))


def read_installed_packages(sbom: Path) -> Iterator[SbomPackage]:
    """List the packages of a CycloneDX file, Python's and conda's first; nothing where it cannot be read."""
    try:
        content = to_dict(read_json(sbom, limit=SBOM_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    found = set()
    for item in map(to_dict, to_list(content.get("components"), limit=PACKAGE_LIMIT)):
        name, version = to_text(item.get("name"), limit=120), to_text(item.get("version"), limit=80)
        kind = to_text(item.get("purl")).removeprefix("pkg:").partition("/")[0][:20]
        if name and item.get("type") == "library":
            found.add(SbomPackage(name=name, version=version, kind=kind))
    yield from sorted(found, key=lambda one: (one.kind not in FIRST_KINDS, one.kind, one.name.lower(), one.version))


def read_log_tail(folder: Path, log: str, *, mask: Callable[[str], str]) -> tuple[str, ...]:
    """Return the last lines of a log below a plan folder, masked and without terminal codes; empty without a log."""
    if not log or not is_plain_path(log):
        return ()
    above, _, name = log.rpartition("/")
    try:
        with tree.open_folder_below(folder, above) as at, os.fdopen(tree.open_file(name, at, log), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            content = file.read(TAIL_BYTES)
    except OSError:
        return ()
    lines = Lines()
    found = [line.text for line in (*lines.feed(content), *lines.close()) if not line.passing]
    if size > TAIL_BYTES:
        found = found[1:]  # it was cut, and half of a secret is not recognised
    shown = [mask(line) for line in found if line.strip()][-TAIL_LINES:]
    return tuple(line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]} ..." for line in shown)


def _with_tail(stage: Stage, folder: Path, *, mask: Callable[[str], str]) -> Stage:
    if stage.status in ("ok", "skipped"):
        return stage
    return replace(stage, fix=mask(stage.fix), tail=read_log_tail(folder, stage.log, mask=mask))


def _below(folder: Path, name: str) -> Path | None:
    """The path of an ordinary file below the folder, None for a link or for what is not there."""
    if is_plain_path(name):
        with suppress(OSError):
            found = tree.stat_path(folder, name)
            return folder / name if found is not None and S_ISREG(found.st_mode) else None
    return None


def _is_regular(path: Path) -> bool:
    with suppress(OSError):
        return S_ISREG(path.lstat().st_mode)
    return False

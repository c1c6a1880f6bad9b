"""Read a plan folder, a results folder, or the plan folder of an image for a report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builder.model.finding import ConfigError, Finding, Location
from builder.model.result_documents import ResultDocuments, assemble_results
from builder.model.results import Results
from builder.model.text import exists, to_text
from builder.report.artifacts import add_artifacts
from builder.sif.bounded import BoundsError, read_json
from builder.system.layout import JOBS, PLAN_FILE, REPORT_FILE, RESULTS, SUBMITTED_FILE, VERDICT_FILE, plan_folder

SIZE_LIMIT = 64 * 1024 * 1024  # bytes; a thousand ranks leave two million
SCHEMA = 1
_SMOKE = re.compile(r"smoke-(?P<name>[\w.-]+)\.json")
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
    elif _has_image_suffix(path):
        message = f"the image '{path}' has no plan folder next to it ('{plan_folder(path)}')"
        raise _fault("report-missing", message, at=path)
    else:
        _read_file(found, path)
        folder = path.parent
    return folder if (folder / PLAN_FILE).is_file() else None


def _was_not_built(path: Path) -> bool:
    """Whether a path is that of an image whose build failed: its plan folder is there."""
    return path.name not in ("", "..") and exists(plan_folder(path))


def _is_image(path: Path) -> bool:
    """Whether a folder is an image (tykky's) with its plan folder next to it."""
    ours = (path / PLAN_FILE).is_file() or (path / REPORT_FILE).is_file()
    return not ours and path.name not in ("", "..") and plan_folder(path).is_dir()


def _has_image_suffix(path: Path) -> bool:
    return path.suffix in (".sif", ".tar", ".sqfs")


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
    """Read all of a plan folder, or a folder of results."""
    if (folder / REPORT_FILE).is_file():
        found.report = _read_document(folder / REPORT_FILE)
        if not _is_report(found.report):
            raise _fault(
                "report-foreign", f"'{folder / REPORT_FILE}' is not a report of a build", at=folder / REPORT_FILE
            )
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
        matched = _SMOKE.fullmatch(path.name)
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

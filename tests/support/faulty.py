"""The faulty files in tests/bad with the exact findings that each gives: files of their own, and tables of short cases.

`NAME.expected` lies beside the file or folder NAME. A table `cases.yaml` holds files that differ in a few lines only:
each case gives those lines, and the text around them is the same for the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.model.finding import ConfigError
from builder.model.recipe import WHOLE, InputChoice

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast as the one without C
BAD = Path(__file__).parents[1] / "bad"
RECIPES = (
    "conda",
    "conda-locks",
    "container",
    "formats",
    "json",
    "pip",
    "pixi",
    "pylock",
    "pyproject",
    "requirements",
    "yaml",
)
# Of a table: the suffix of its files, what stands before its lines, and the key of the first line's findings.
LINES = {
    "conda": (".yml", "dependencies:\n", "  - ", "dependencies[{}]"),
    "pip": (".yml", "dependencies:\n  - python=3.12\n  - pip:\n", "      - ", "dependencies.pip[{}]"),
    "requirements": (".txt", "", "", ""),
}
TEXTS = {
    "json": (".json", ""),
    "conda-locks": (".lock", ""),
    "pixi": (".toml", ""),
    "pylock": (".toml", ""),
    "pyproject": (".toml", ""),
    "container": (".yml", "dependencies:\n  - python=3.12\ncontainer:\n"),
    "site": (".yaml", "extends: local\nname: {}\n"),
}


@dataclass(frozen=True, kw_only=True)
class Faulty:
    """One faulty file; `path` is relative to its folder, and a case of a table is written there first."""

    name: str
    folder: Path
    path: str
    expected: str
    text: str | None = None
    choice: InputChoice = WHOLE

    def placed(self, folder: Path) -> Path:
        """The folder that holds the file: its own, or the given one for a case of a table."""
        if self.text is None:
            return self.folder
        (folder / self.path).write_text(self.text, encoding="utf-8")
        return folder


def faulty(*parts: str) -> list[Faulty]:
    """All cases of these folders in tests/bad, by name."""
    found = [case for part in parts for case in (*_files(BAD / part), *_table(BAD / part))]
    return sorted(found, key=lambda case: case.name)


def said(error: ConfigError) -> str:
    """The findings in the user's words, with bare names for full paths."""
    text = ""
    for finding in error.findings:
        text += f"{finding.level}: {finding.message}\n"
        if finding.at:
            bare = Path(finding.at.file).name if Path(finding.at.file).is_absolute() else finding.at.file
            text += f"  at:  {str(finding.at).replace(finding.at.file, bare)}\n"
        text += f"  fix: {finding.fix}\n"
    return text


def _files(folder: Path) -> list[Faulty]:
    found = []
    for expected in sorted(folder.glob("*.expected")):
        path = _file_of(expected).relative_to(folder)
        text = expected.read_text(encoding="utf-8")
        found.append(Faulty(name=expected.stem, folder=folder, path=str(path), expected=text))
    return found


def _file_of(expected: Path) -> Path:
    inside = expected.with_suffix("")
    if inside.is_dir():
        files = [path for path in sorted(inside.iterdir()) if path.is_file()]
        return next((path for path in files if path.stem in ("requirements", "environment")), files[0])
    return next(path for path in expected.parent.glob(f"{expected.stem}.*") if path != expected)


def _table(folder: Path) -> list[Faulty]:
    path = folder / "cases.yaml"
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER) if path.is_file() else {}
    case = _of_lines if folder.name in LINES else _of_text
    return [case(folder, name, row) for name, row in rows.items()]


def _of_lines(folder: Path, name: str, rows: Any) -> Faulty:
    """A case whose lines are given one by one, each with its finding."""
    suffix, head, indent, key = LINES[folder.name]
    text = head + "".join(f"{indent}{row['line']}\n" for row in rows)
    expected = ""
    for index, row in enumerate(rows):
        if "error" in row:
            line = head.count("\n") + 1 + index
            where = f": {key.format(index)}" if key else ""
            expected += f"error: {row['error']}\n  at:  {name}{suffix}:{line}{where}\n  fix: {row['fix']}\n"
    return Faulty(name=name, folder=folder, path=name + suffix, text=text, expected=expected)


def _of_text(folder: Path, name: str, row: Any) -> Faulty:
    """A case whose text is given whole; `at` is the line of the file and the key."""
    suffix, head = TEXTS[folder.name]
    path = name + suffix
    expected = ""
    for fault in row["faults"]:
        at = f"{path}:{fault['at']}".rstrip(":")  # the whole file has no line
        expected += f"error: {fault['error']}\n  at:  {at}\n  fix: {fault['fix']}\n"
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in row.get("choice", {}).items()}
    text = (head.format(name) if head else "") + row["text"]
    return Faulty(name=name, folder=folder, path=path, text=text, expected=expected, choice=InputChoice(**options))

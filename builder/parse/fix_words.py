"""The fixes of faults, which are written for YAML, in the words of TOML and JSON."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from builder.model.finding import Finding

Form = Literal["toml", "json"]
Rows = tuple[tuple[re.Pattern[str], str], ...]
TOML: Rows = (
    (re.compile(r"write one item a line, each after '- '"), 'write a list, as in ["..."]'),
    (re.compile(r"write it as 'KEY: value' lines"), "write it as 'KEY = \"value\"' lines"),
    (re.compile(r"put quotes round it: ([\w.-]+): "), r"put quotes round it: \1 = "),
    (re.compile(r"after '- \|'"), "between three quotes"),
    (re.compile(r"write the version below dependencies: '- python=[^']*'"), "write the version as 'requires-python'"),
    (re.compile(r"; several need a '- ' line each"), ""),
)
JSON: Rows = (
    (re.compile(r"write (?:one item a line, each after '- '|'- [\w-]+' lines)"), 'write a list, as in ["..."]'),
    (re.compile(r"write one package a line, each after '- '"), 'write a list, as in ["python=3.12", "numpy"]'),
    (re.compile(r"write one package a line below 'pip:', each after '- '"), 'write a list, as in {"pip": ["torch"]}'),
    (re.compile(r"write it as 'KEY: value' lines"), 'write it as {"KEY": "value"}'),
    (re.compile(r"put quotes round it: ([\w.-]+): "), r'put quotes round it: "\1": '),
    (re.compile(r"begin with 'dependencies:' and write the packages below it; .*"), 'write {"dependencies": ["..."]}'),
    (re.compile(r"write packages below 'dependencies:', e\.g\. '- python=3\.12'"), 'write {"dependencies": ["..."]}'),
    (re.compile(r"write e\.g\. '- ([^']*)'"), r'write e.g. "\1"'),
    (re.compile(r"write it as an item below dependencies: '- pip:', and the list below that"),
     'write {"pip": ["..."]} as an item of "dependencies"'),
    (re.compile(r"; several need a '- ' line each"), ""),
)  # fmt: skip


def translate_fix(finding: Finding, *, form: Form) -> Finding:
    """Return a finding with its fix in the words of another format, and without the edit of a line of YAML."""
    fix = finding.fix
    for pattern, words in TOML if form == "toml" else JSON:
        fix = pattern.sub(words, fix)
    if gpu := re.fullmatch(r"write gpu: \[(.*)\]", fix):
        vendors = ", ".join(f'"{word}"' for word in gpu[1].split(", "))
        fix = f"write gpu = [{vendors}]" if form == "toml" else f'write "gpu": [{vendors}]'
    return replace(finding, fix=fix, edit=None)

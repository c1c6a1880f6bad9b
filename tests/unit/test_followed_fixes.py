"""Files whose fixes are followed until nothing is left to do on that site, in at most four steps."""

from __future__ import annotations

import re
from pathlib import Path

from support.rows import rows

from builder.compile.backends import list_backend_findings
from builder.model.finding import Finding, UnsupportedError
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

STEPS = 4
OF_THE_SITE = {
    "cuda-minor",
    "site-unsure",
    "site-driver-unknown",
    "table-unsure",
    "mpi-launcher",
    "conda-cuda",
}  # no file changes it
FLASH = "dependencies:\n  - python=3.11\n  - pip:\n    - torch\n    - flash-attn\n"
PIP_MPICH = "dependencies:\n  - python=3.11\n  - pip:\n    - mpi4py\n    - mpich\n"
CONDA_MPICH = "dependencies:\n  - python=3.11\n  - mpi4py\n  - mpich\n"


HEAD = "dependencies:\n  - python={}\n  - pip:\n    - {}\n"
JAX = [
    HEAD.format(python, line)
    for python in ("3.10", "3.12", "3.14")
    for line in ("jax==0.4.350", "jax[cuda12]==0.4.350", "jax[rocm]==0.5.0", "numpy==1.26.40")
]
TRITON = [
    *(HEAD.format("3.12", line) for line in ("triton", "triton==3.1.0", "pytorch-triton-rocm==3.1.0")),
    HEAD.format("3.14", "triton==3.1.0"),
    "dependencies:\n  - python=3.12\n  - triton\n",
]
SITES = [path.stem for path in sorted((Path(__file__).parents[2] / "sites").glob("*.yaml"))]


def find(path: Path, site: str, *, base: str) -> list[Finding]:
    """The errors and warnings that ask for an action."""
    try:
        target = resolve(load_recipe(path), load_site(site), context=Context(tool="recipe 0.0.0", base=base))
        found = (*target.findings, *list_backend_findings(target))
    except UnsupportedError as error:
        found = error.findings
    asked = [one for one in found if one.level != "note" and one.code not in OF_THE_SITE]
    return [one for one in asked if not one.fix.startswith("no action needed")]


def follow(finding: Finding, text: str, base: str) -> tuple[str, str]:
    """The text and the base image after the first thing that the fix says."""
    fix, lines = finding.fix, text.splitlines(keepends=True)
    if image := re.match(r"choose a base image with nvcc \((docker://\S+)\)", fix):
        return text, image[1]
    if python := re.match(r"(?:write|use) python=(\S+?),? ", fix):
        return re.sub(r"python=\S+", f"python={python[1]}", text), base
    if text_of := re.match(r"(?:write|use) ((?:jax|numpy|triton)\S*[=>]=?\S+)$", fix):
        lines[line_of(finding)] = re.sub(r"(?<=- )\S+$", text_of[1], lines[line_of(finding)].rstrip()) + "\n"
        return "".join(lines), base
    if offer := re.match(r"for \w+ there is: ([^ ,]+)", fix):
        lines[line_of(finding)] = f"    - {offer[1]}\n"
        return "".join(lines), base
    if triton := re.match(r"(?:below '- pip:' )?write (\S+) and, in a line before it, (--extra-index-url \S+);", fix):
        if "- pip:" in fix:
            del lines[line_of(finding)]
            return f"{''.join(lines)}  - pip:\n    - {triton[2]}\n    - {triton[1]}\n", base
        lines[line_of(finding)] = f"    - {triton[2]}\n    - {triton[1]}\n"
        return "".join(lines), base
    if fix.startswith("remove it") and finding.at and finding.at.line:
        del lines[finding.at.line - 1]
        return "".join(lines), base
    if fix.endswith("add mpich to the pip packages"):
        return text + "    - mpich\n", base
    raise AssertionError(f"nothing follows '{fix}'")


def line_of(finding: Finding) -> int:
    """The place of a finding's line in a list of lines."""
    assert finding.at is not None
    assert finding.at.line is not None
    return finding.at.line - 1


@rows(
    ("text", "site"),
    [
        (FLASH, "mn5"),
        *((text, site) for text in (*JAX, *TRITON) for site in SITES),
        *((text, site) for text in (PIP_MPICH, CONDA_MPICH) for site in ("mn5", "local", "lumi-g", "frontier")),
    ],
)
def test_fixes_lead_to_a_file_that_passes(tmp_path: Path, text: str, site: str) -> None:
    path, base = tmp_path / "x.yml", ""
    for _ in range(STEPS + 1):
        path.write_text(text, encoding="utf-8")
        left = find(path, site, base=base)
        if not left:
            return
        text, base = follow(left[0], text, base)
    raise AssertionError(f"after {STEPS} steps: {left}")

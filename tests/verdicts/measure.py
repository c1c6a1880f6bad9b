"""What `check` without a network says of the labelled recipes: false accepts and false refusals by kind."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from builder.model.finding import BuilderError
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve
from verdicts.lines import SITES, VERDICTS

FILES = ("labels.tsv", "packages.tsv")  # made by make_labels.py; by hand, from wheels that were opened
# What a site's facts or a missing version add to any recipe says nothing of the line.
OF_THE_SITE = {"site-unsure", "cuda-minor", "table-unsure", "driver-disputed", "conda-cuda", "rocm-unsafe"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One labelled recipe."""

    kind: str
    recipe: str
    cells: str
    evidence: str

    @property
    def held(self) -> bool:
        """Whether it is of the third that is kept for the last run."""
        return crc32(self.recipe.encode()) % 3 == 0


@dataclass(kw_only=True)
class Result:
    """Counts of cells by kind, and the cells that are wrong."""

    judged: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)  # falsely: without a word
    refused: Counter[str] = field(default_factory=Counter)  # falsely
    silent: Counter[str] = field(default_factory=Counter)  # accepted as it should be, without the warning
    wrong: list[str] = field(default_factory=list)

    def list_lines(self) -> Iterator[str]:
        """The table: a line for each kind, and the sum."""
        yield f"{'kind':<18}{'judged':>8}{'falsely accepted':>18}{'falsely refused':>17}{'no warning':>12}"
        for kind in sorted(self.judged):
            counts = (self.judged, self.accepted, self.refused, self.silent)
            yield f"{kind:<18}" + "".join(
                f"{one[kind]:>{width}}" for one, width in zip(counts, (8, 18, 17, 12), strict=True)
            )
        total = self.judged.total()
        shares = (
            f"{one.total()} ({100 * one.total() / total:.1f} %)" for one in (self.accepted, self.refused, self.silent)
        )
        yield f"{'all':<18}{total:>8}" + "".join(
            f"{one:>{width}}" for one, width in zip(shares, (18, 17, 12), strict=True)
        )


def read_rows() -> list[Row]:
    """Read the rows of the files, and the lines of public recipes."""
    found = []
    for name in FILES:
        head, *lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
        assert head.split("\t")[2] == ",".join(SITES), name
        fields = (line.split("\t") for line in lines)
        found += [Row(kind=kind, recipe=recipe, cells=cells, evidence=why) for kind, recipe, cells, why in fields]
    for recipe, cells, why in VERDICTS:
        found.append(Row(kind="public line", recipe=recipe, cells=cells.replace(".", "+"), evidence=why))
    return found


def write_recipe(folder: Path, recipe: str) -> Path:
    """Write a recipe in the form of the labels as a file."""
    if not recipe.startswith("conda "):
        path = folder / "requirements.txt"
        path.write_text("".join(f"{line}\n" for line in recipe.split("; ")), encoding="utf-8")
        return path
    path = folder / "environment.yml"
    words = recipe.split()[1:]
    conda = [word for word in words if not word.startswith("pip:")]
    pip = [word.removeprefix("pip:") for word in words if word.startswith("pip:")]
    conda = conda if any(word.startswith("python=") for word in conda) else ["python=3.11", *conda]
    text = "name: x\nchannels: [conda-forge]\ndependencies:\n" + "".join(f"  - {word}\n" for word in conda)
    text += "  - pip:\n" + "".join(f"    - {word}\n" for word in pip) if pip else ""
    path.write_text(text, encoding="utf-8")
    return path


def judge(path: Path, site: str) -> str:
    """What `check` says: `+`, `w` for accepted with a warning, `x`."""
    try:
        found = resolve(load_recipe(path, shown=path.name), load_site(site), context=Context())
    except BuilderError:
        return "x"
    told = [one for one in found.findings if one.level == "warning" and one.code not in OF_THE_SITE]
    return "w" if told else "+"


def measure(rows: Iterable[Row], *, sites: tuple[str, ...] = SITES) -> Result:
    """Judge every cell that has a label; a warning about what cannot work counts as told, not as accepted."""
    result = Result()
    with tempfile.TemporaryDirectory() as name:
        for row in rows:
            path = write_recipe(Path(name), row.recipe)
            for site, label in zip(sites, row.cells, strict=True):
                if label == "?":
                    continue
                said = judge(path, site)
                result.judged[row.kind] += 1
                counter = None
                if label == "x" and said == "+":
                    counter = result.accepted
                elif label in "+w" and said == "x":
                    counter = result.refused
                elif label == "w" and said == "+":
                    counter = result.silent
                if counter is not None:
                    counter[row.kind] += 1
                    result.wrong.append(f"{row.recipe} on {site}: {said}, label {label} ({row.evidence})")
    return result

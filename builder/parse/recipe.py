"""Read a recipe: a conda environment file or a pip requirements file, to its normal form.

Every key, option and version is either understood or refused by name; nothing is ignored.
"""

from __future__ import annotations

from pathlib import Path

from builder.model.finding import ConfigError, Location
from builder.model.recipe import Recipe
from builder.model.text import make_config_error
from builder.parse.environment_yml import EnvironmentReader, hash_texts, name_from, sort_findings
from builder.parse.other_formats import PIP_SUFFIXES, refuse_other_formats
from builder.parse.requirement import check_hashes, join_requirements
from builder.parse.requirements_txt import RequirementsReader
from builder.parse.secret_findings import check_addresses
from builder.parse.yaml import read_text


def load_recipe(path: Path, *, shown: str | None = None, text: str | None = None) -> Recipe:
    """Read a recipe; raises ConfigError with every fault of the file.

    `shown` is its name in messages, `text` is read in the place of what the file holds.
    """
    file = shown or str(path)
    refuse_other_formats(path, file=file)
    if path.suffix.lower() in PIP_SUFFIXES:
        return _read_requirements(path, file=file, text=text)
    return EnvironmentReader(path, file=file, text=text).read_recipe()


def _read_requirements(path: Path, *, file: str, text: str | None) -> Recipe:
    text = read_text(path, what="recipe", name=file) if text is None else text
    reader = RequirementsReader(file=file, folder=path.parent)
    reader.add_text(text, at=Location(file=file, line=1), base=path.parent, inside=(path.resolve(),))
    requirements, faults = join_requirements(reader.requirements, file=file, key="")
    options = reader.make_options()
    findings = [*reader.findings, *faults]
    findings += check_hashes(requirements, asked=options.require_hashes, file=file)
    if not requirements and not findings:
        message = "the requirements file asks for no package"
        findings += make_config_error("recipe-empty", message, at=Location(file=file), fix="write one a line").findings
    if findings:
        raise ConfigError(*sort_findings(findings, file=file))
    stem = path.stem
    return Recipe(
        name=name_from(path.resolve().parent.name if stem == "requirements" else stem),
        file=file,
        digest=hash_texts([text, *reader.texts]),
        folder=str(path.parent),
        kind="pip",
        pip=requirements,
        pip_options=options,
        warnings=tuple(check_addresses(requirements, options, file=file)),
    )

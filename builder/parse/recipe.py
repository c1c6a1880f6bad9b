"""Read a recipe, a file of one of several kinds, to its normal form.

Every key, option and version is either understood or refused by name; nothing is ignored.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from builder.model.finding import ConfigError, Location
from builder.model.recipe import STDIN, WHOLE, InputChoice, InputKind, Recipe
from builder.model.text import convert_marked, make_config_error
from builder.parse.copied_files import check_own_folders
from builder.parse.environment_yml import EnvironmentReader, hash_texts, name_from, sort_findings
from builder.parse.other_formats import PIP_SUFFIXES, READ, is_explicit, refuse_other_contents, refuse_other_formats
from builder.parse.requirement import check_hashes, join_requirements
from builder.parse.requirements_txt import RequirementsReader
from builder.parse.written_secrets import check_addresses
from builder.parse.yaml import read_text

KINDS: dict[InputKind, str] = {
    "conda": "a conda environment file",
    "pip": "a pip requirements file",
    "pyproject": "a Python project",
    "pixi": "a pixi workspace",
    "pylock": "a pylock file",
    "uv-lock": "a uv lock file",
    "conda-lock": "a conda-lock file",
    "pixi-lock": "a pixi lock file",
    "explicit": "a list of conda packages",
}
# The locks of other tools, with the options that choose a part of one.
LOCKS: dict[InputKind, tuple[str, ...]] = {
    "pylock": ("--extra", "--group"), "uv-lock": ("--extra", "--group"), "conda-lock": ("--group",),
    "pixi-lock": ("--environment",), "explicit": (),
}  # fmt: skip
# The first lines that only one kind has, of a text whose name does not say its kind; compiled where one is needed.
SIGNS: tuple[tuple[InputKind, str], ...] = (
    ("pylock", r"^lock-version\s*="),
    ("explicit", r"^@EXPLICIT\s*$"),
    ("pixi", r"^\[(?:workspace|pypi-dependencies|dependencies|feature\.[^\]\n]+|tool\.pixi\.[^\]\n]+)\]"),
    ("pyproject", r"^\[(?:project|dependency-groups|build-system|tool\.[^\]\n]+)\]"),
    ("conda", r"\A\s*\{|^(?:name|channels|dependencies|variables|container|prefix)\s*:"),
)


UV_LOCK = "uv.lock"
LOCK_NAMES: tuple[tuple[re.Pattern[str], InputKind], ...] = (
    (re.compile(r"uv\.lock"), "uv-lock"),
    (re.compile(r"pixi\.lock"), "pixi-lock"),
    (re.compile(r"pylock\.(?:[^.]+\.)?toml"), "pylock"),
    (re.compile(r"(?:.+\.)?conda-lock\.ya?ml"), "conda-lock"),
)


def load_recipe(
    path: Path, *, shown: str | None = None, text: str | None = None, choice: InputChoice = WHOLE
) -> Recipe:
    """Read a recipe; raises ConfigError with every fault of the file.

    `shown` is its name in messages, `text` is read in the place of what the file holds, `choice` says what of a project
    is taken.
    """
    recipe = _read_recipe(path, file=shown or str(path), text=text, choice=choice)
    words = choice.list_words()
    if not words:
        return recipe
    others = {arch: replace(other, options=words) for arch, other in recipe.by_processor.items()}
    return replace(recipe, options=words, by_processor=others)


def _read_recipe(path: Path, *, file: str, text: str | None, choice: InputChoice) -> Recipe:
    if file == STDIN and choice.stdin is not None:
        text = _decode_stdin(choice.stdin)
    else:
        refuse_other_formats(path, file=file, named=choice.kind is not None)
    kind = choice.kind or _find_kind(path)
    if kind is None:  # a file that ends in .toml, or standard input
        text = read_text(path, what="recipe", name=file) if text is None else text
        kind = _guess_kind(text, path=path, file=file)
    _check_choice(choice, kind=kind, file=file)
    if kind == "pip":
        return _read_requirements(path, file=file, text=text)
    if kind == "conda":
        return EnvironmentReader(path, file=file, text=text).read_recipe()
    if kind in LOCKS:
        return _read_lock(path, file=file, text=text, kind=kind, choice=choice)
    return _read_project(path, file=file, text=text, kind=kind, choice=choice)


def _find_kind(path: Path) -> InputKind | None:
    """The kind of a file by its name; None where the content has to say it."""
    suffix = path.suffix.lower()
    if suffix in (*PIP_SUFFIXES, ".lock", "") and is_explicit(path):
        return "explicit"
    if suffix in PIP_SUFFIXES:
        return "pip"
    if path.name == "pixi.toml":
        return "pixi"
    if path.name == "pyproject.toml":
        return "pyproject"
    for name, kind in LOCK_NAMES:
        if name.fullmatch(path.name):
            return kind
    return None if suffix == ".toml" or path.name == STDIN else "conda"


def _guess_kind(text: str, *, path: Path, file: str) -> InputKind:
    kind = next((kind for kind, sign in SIGNS if re.search(sign, text, re.MULTILINE)), None)
    if path.name == STDIN:
        return kind or "pip"
    if kind in ("pixi", "pyproject", "pylock"):
        return kind
    at = Location(file=file)
    raise make_config_error("recipe-format", f"'{file}' is a TOML file, not a recipe", at=at, fix=READ)


def _check_choice(choice: InputChoice, *, kind: InputKind, file: str) -> None:
    """Raise ConfigError for an option that has no meaning for this kind of file."""
    options = {"--extra": choice.extras, "--group": choice.groups, "--install-project": choice.project}
    parts = LOCKS.get(kind, ())
    given = [name for name, value in options.items() if value and kind != "pyproject" and name not in parts]
    known = ("pixi", "pyproject", "pixi-lock")
    given += ["--environment"] if choice.environment and kind not in known else []
    if given:
        message = f"'{file}' is {KINDS[kind]}, which has no {' and no '.join(given)}"
        fix = f"leave out {' and '.join(given)}"
        if kind == "pixi":
            fix = "choose an environment that has that feature: --environment NAME"
        raise make_config_error("input-option", message, at=Location(file=file, key=given[0]), fix=fix)


def _decode_stdin(data: bytes) -> str:
    refuse_other_contents(data[:4096], file=STDIN)
    try:
        return convert_marked(data).decode("utf-8-sig")
    except UnicodeDecodeError:
        at = Location(file=STDIN)
        raise make_config_error(
            "file-encoding", "standard input is not UTF-8 text", at=at, fix="save it as UTF-8"
        ) from None


def _read_project(path: Path, *, file: str, text: str | None, kind: InputKind, choice: InputChoice) -> Recipe:
    from builder.parse.pixi import is_pixi, read_pixi
    from builder.parse.pyproject import read_pyproject
    from builder.parse.toml import SIZE_LIMIT, parse_toml

    text = read_text(path, what="recipe", name=file, limit=SIZE_LIMIT) if text is None else text
    tree = parse_toml(text, file=file)
    if kind == "pixi" or (choice.kind is None and is_pixi(tree)):
        _check_choice(choice, kind="pixi", file=file)
        return read_pixi(path, file=file, tree=tree, choice=choice)
    if choice.environment:
        message = f"'{file}' has no [tool.pixi.workspace], and so no environments"
        fix = "leave out --environment; --extra and --group choose parts of a project"
        raise make_config_error("input-option", message, at=Location(file=file, key="--environment"), fix=fix)
    return read_pyproject(path, file=file, tree=tree, choice=choice)


def _read_lock(path: Path, *, file: str, text: str | None, kind: InputKind, choice: InputChoice) -> Recipe:
    """Read the lock of another tool; raises ConfigError for a uv.lock that uv has not written as a pylock."""
    from builder.parse.pylock import SIZE_LIMIT, list_package_lines, read_pylock_recipe

    text = read_text(path, what="lock", name=file, limit=SIZE_LIMIT) if text is None else text
    if kind not in ("pylock", "uv-lock"):
        from builder.parse.conda_locks import read_conda_lock_recipe

        return read_conda_lock_recipe(path, file=file, text=text, kind=kind, choice=choice)
    if kind == "pylock":
        return read_pylock_recipe(path, file=file, text=text, choice=choice)
    made = choice.exports.get(str(path))
    if made is None:
        fix = "run `uv export --format pylock.toml -o pylock.toml`, and give that file"
        message = f"'{file}' is a uv lock file, which this command does not read"
        raise make_config_error("recipe-format", message, at=Location(file=file), fix=fix)
    return read_pylock_recipe(path, file=file, text=made, choice=choice, lines=list_package_lines(text))


def _read_requirements(path: Path, *, file: str, text: str | None) -> Recipe:
    text = read_text(path, what="recipe", name=file, marked=True) if text is None else text
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
        warnings=(
            *check_addresses(requirements, options, file=file),
            *check_own_folders(requirements, folder=path.parent, file=file),
        ),
    )


def name_index(env: Path) -> Path:
    """Return the index of the lock of an environment file, next to it."""
    # Next to it is a folder of the same name without .yml, which cannot have the name of a lock such as uv.lock.
    stem = env.name.replace(".", "-") if env.suffix == ".lock" else env.stem
    return env.with_name(f"{stem}.lock.yml")

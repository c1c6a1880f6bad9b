"""recipe init site: the file of a site, from what this machine says or with everything unknown."""

from __future__ import annotations

import os
import re
import tempfile
from datetime import date
from pathlib import Path

from builder.cli.file_kinds import find_kind
from builder.cli.output import echo, emit
from builder.cli.schema import add_schema
from builder.cli.typed import quote
from builder.execute.site_detection import MachineFacts, detect_machine
from builder.execute.site_draft import SiteDraft, make_draft
from builder.model.finding import ConfigError, Finding
from builder.parse.site import find_site_files, load_site
from builder.parse.site_options import NAME
from builder.system.files import write_atomic

SUFFIXES = (".yaml", ".yml")


def write_site_file(name: str | None, *, output: Path | None, detect: bool, force: bool) -> None:
    """Write the file and print its path, and on stderr what is unknown; raises ConfigError."""
    facts = detect_machine(environment=os.environ) if detect else None
    name = name or (output.stem if output and not output.is_dir() else "") or _suggest_name(facts)
    _check_name(name)
    target = output / f"{name}.yaml" if output is not None and output.is_dir() else output or Path(f"{name}.yaml")
    _check_target(target, name=name, force=force)
    draft = make_draft(facts, name=name, today=date.today().isoformat())
    _check_draft(draft, name=name)
    write_atomic(target, add_schema(draft.text, kind="site", target=target))
    emit(str(target))
    for text in draft.unknown:
        echo(f"unknown: {text}", err=True)
    shown = str(target) if "/" in str(target) else f"./{target}"
    echo(f"next: recipe check {quote(shown)} ENV; in ~/.config/recipe/sites it is found by its name", err=True)


def _suggest_name(facts: MachineFacts | None) -> str:
    """The cluster's name, else the machine's without its number."""
    words = facts.cluster or re.sub(r"[0-9]+$", "", facts.host) if facts else ""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "cluster"


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "tiger"
        message = f"'{name}' cannot be the name of a site"
        raise ConfigError(Finding(code="site-name", message=message, fix=f"`recipe init site {slug}`"))
    if name in find_site_files():
        message = f"'{name}' is a site that comes with recipe"
        fix = f"choose another name; to change it, write a {name}.yaml of your own with `extends: {name}`"
        raise ConfigError(Finding(code="site-name", message=message, fix=fix))


def _check_target(target: Path, *, name: str, force: bool) -> None:
    """Raise ConfigError for a file that is there, and for a name that is not the site's."""
    if target.suffix not in SUFFIXES or target.stem != name:
        message = f"'{target}' is not the file of the site '{name}'"
        fix = f"`recipe init site {name} -o {quote(str(target.with_name(f'{name}.yaml')))}`"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    if not os.path.lexists(target):
        return
    if target.is_symlink() or find_kind(target) not in ("a site file", "an empty file"):
        message, fix = f"'{target}' exists and is not a site file: it is never replaced", "write it elsewhere with -o"
        raise ConfigError(Finding(code="init-exists", message=message, fix=fix))
    if not force:
        fix = "add --force to replace it, or write it elsewhere with -o"
        raise ConfigError(Finding(code="init-exists", message=f"'{target}' exists already", fix=fix))


def _check_draft(draft: SiteDraft, *, name: str) -> None:
    """Load the file as every command does; raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(draft.text, encoding="utf-8")
        load_site(str(path))

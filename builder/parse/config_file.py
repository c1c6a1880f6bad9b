"""The files of settings: config.yaml of the user and of the system, decoded and checked.

A file is data: nothing in it is run, and of the variables of the environment only `${NAME}` in a path is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from builder.model.config import Config, ConfigFile, Indexes, Owner
from builder.model.finding import ConfigError, Finding, Location, suggest_name
from builder.model.secrets import has_login, redact, strip_credentials
from builder.model.target import DEFAULT_INDEX
from builder.model.text import SLURM_ACCOUNT, URL, VARIABLE, check_url, exists, is_folder, sanitize
from builder.parse.decoder import Decoder
from builder.parse.site_options import NAME
from builder.parse.yaml import Table, Text, Value, parse_yaml, read_text

EXPANSION = re.compile(rf"\$\{{({VARIABLE.pattern})\}}")
SCHEMES = ("https", "http", "file")
TABLES = {"account": None, "indexes": Indexes}  # None: its keys are names of sites


def read_config(path: str, *, owner: Owner, environment: Mapping[str, str]) -> tuple[ConfigFile, tuple[Finding, ...]]:
    """Read a file of settings, with its warnings; raises ConfigError with all its faults."""
    at, faults = Location(file=path), list[Finding]()
    tree = parse_yaml(read_text(Path(path), what="config file"), file=path, faults=faults)
    if tree is None or (isinstance(tree, Text) and tree.kind == "null"):
        return ConfigFile(path=path, owner=owner, values={}, lines={}), ()
    if not isinstance(tree, Table):
        message = "the config file is no table of keys"
        known = ", ".join(field.name for field in fields(Config))
        raise ConfigError(*faults, Finding(code="config-empty", message=message, at=at, fix=f"known keys: {known}"))
    warnings: list[Finding] = []
    tree = _drop_unknown(tree, Config, key="", file=path, found=warnings)
    decoder = Decoder(file=path)
    config = decoder.decode_table(tree, Config, key="")
    faults += decoder.findings
    if config is None:  # the values next to the faulty ones may be faulty, too
        tree = _drop_faulty(tree, {found.at.key for found in decoder.findings if found.at is not None}, key="")
        config = Decoder(file=path).decode_table(tree, Config, key="")
    if config is None:
        raise ConfigError(*faults, *warnings)
    values, lines = dict[str, str](), dict[str, int]()
    for key, value, line in _list_values(config, tree):
        place = Location(file=path, line=line, key=key)
        values[key] = _expand(value, at=place, environment=environment, faults=faults) if key == "cache" else value
        lines[key] = line
        faults += _find_faults(key, values[key], at=place)
    if faults:
        raise ConfigError(*faults, *warnings)
    return ConfigFile(path=path, owner=owner, values=values, lines=lines), tuple(warnings)


def _drop_unknown(tree: Table, kind: Any, *, key: str, file: str, found: list[Finding]) -> Table:
    """Leave out unknown keys with a warning: a newer version may know them."""
    known = [field.name for field in fields(kind)]
    entries: list[tuple[Text, Value]] = []
    for name, value in tree.entries:
        place = f"{key}.{name.raw}".lstrip(".")
        if name.raw not in known:
            shown = sanitize(place)
            message, at = f"unknown key '{shown}': it is ignored", Location(file=file, line=name.line, key=shown)
            fix = suggest_name(name.raw, known=known)
            found.append(Finding(code="config-key", message=message, at=at, fix=fix, level="warning"))
            continue
        if isinstance(value, Text) and value.kind == "null":
            continue
        inner = TABLES.get(place)
        if inner is not None and isinstance(value, Table):
            value = _drop_unknown(value, inner, key=place, file=file, found=found)
        entries.append((name, value))
    return Table(entries=tuple(entries), line=tree.line)


def _drop_faulty(tree: Table, keys: set[str], *, key: str) -> Table:
    """Leave out the entries at these paths."""
    entries: list[tuple[Text, Value]] = []
    for name, value in tree.entries:
        place = f"{key}.{name.raw}".lstrip(".")
        if place not in keys:
            entries.append((name, _drop_faulty(value, keys, key=place) if isinstance(value, Table) else value))
    return Table(entries=tuple(entries), line=tree.line)


def _list_values(config: Config, tree: Table) -> Iterator[tuple[str, str, int]]:
    """Every value that is given, with the path of its key and its line."""
    for name, value in tree.entries:
        if not isinstance(value, Table):
            yield name.raw, getattr(config, name.raw), name.line
            continue
        below = getattr(config, name.raw)
        for inner, _ in value.entries:
            found = below[inner.raw] if isinstance(below, Mapping) else getattr(below, inner.raw)
            yield f"{name.raw}.{inner.raw}", found, inner.line


def _find_faults(key: str, value: str, *, at: Location) -> Iterator[Finding]:
    """What is wrong with a value, or with the name of a site."""
    section, _, name = key.partition(".")
    site = value if section == "site" else name if section == "account" else ""
    if site and not NAME.fullmatch(site):
        message = f"'{sanitize(site)}' cannot be the name of a site"
        yield Finding(code="config-value", message=message, at=at, fix="write a name that `recipe sites` lists")
    if section == "account" and not SLURM_ACCOUNT.fullmatch(value):
        message = f"'{sanitize(value)}' cannot be a Slurm account"
        yield Finding(code="config-value", message=message, at=at, fix=f"write its name alone, as in {name}: project_1")
    elif section == "indexes":
        yield from _find_index_faults(key, value, at=at)
    elif section == "cache" and value and exists(Path(value)) and not is_folder(value):
        message = f"'{sanitize(value, limit=400)}' cannot be the cache: it is no folder"
        yield Finding(code="config-value", message=message, at=at, fix="write the path of a folder of your own")


def _find_index_faults(key: str, value: str, *, at: Location) -> Iterator[Finding]:
    """An index is an address, or a folder; only pip's may have a login, which the tools that install keep secret."""
    plain = value
    if key.endswith(".torch"):
        plain = value.replace("{token}", "cpu")
        if value == DEFAULT_INDEX:
            return
    elif value.startswith("/") and URL.fullmatch(f"file:{value}"):
        return
    elif has_login(value):
        plain = strip_credentials(value)
    try:
        check_url(plain, at=at, schemes=SCHEMES)
    except ConfigError as error:
        for finding in error.findings:
            fix = "remove the login: torch's index is in plans, which are shared" if has_login(plain) else finding.fix
            yield Finding(code="config-value", message=redact(finding.message), at=at, fix=fix)


def _expand(value: str, *, at: Location, environment: Mapping[str, str], faults: list[Finding]) -> str:
    """The path with `~/` and `${NAME}` replaced; a fault where it is not absolute then."""
    names = EXPANSION.findall(value)
    missing = next((name for name in names if not environment.get(name)), "")
    text = EXPANSION.sub(lambda match: environment.get(match[1], ""), value)
    if text.startswith("~/") and environment.get("HOME", "").startswith("/"):
        text = f"{environment['HOME']}{text[1:]}"
    message = f"'{sanitize(value, limit=400)}' cannot be the cache: "
    if missing:
        message, fix = f"{message}{missing} is not set", "write the path of a folder of your own"
    elif "$" in text or not text.startswith("/"):
        message, fix = f"{message}it is not an absolute path", "begin it with / or ~/; ${NAME} is replaced, $( ) is not"
    else:
        return str(Path(text))
    faults.append(Finding(code="config-value", message=message, at=at, fix=fix))
    return ""

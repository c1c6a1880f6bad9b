"""Find, extend, decode and check site files: bundled ones, a user's own from a folder, or one given by its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from builder.model.decode import Decoder
from builder.model.document import Table, Text, Value, parse_yaml, read_text
from builder.model.finding import ConfigError, Finding, Place, did_you_mean
from builder.model.site import Site

BUNDLED = Path(__file__).parents[1] / "data" / "sites"
EXTENDS_LIMIT = 8

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MODULE = re.compile(r"purge|(?:use|load|unload) [A-Za-z0-9_.+/:-]+")
OPTION = re.compile(r"[a-z][a-z-]*")
PLAIN = re.compile(r"[A-Za-z0-9_.,:+=@%/{}-]*")
DATE = re.compile(r"20\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?")
# ${NAME} is the one thing that a shell may expand in a site's value; $ and ` in any other form are refused.
EXPANSION = re.compile(r"(?:[^$`\\\"\x00-\x1f\x7f]|\$\{[A-Za-z_][A-Za-z0-9_]*\})*")
REFERENCE = re.compile(r"(?:(?:docker|oras|library)://)?[A-Za-z0-9_./:@+-]+")


def site_files(folder: Path | None = None) -> dict[str, Path]:
    """Name every site file that can be found; a user's own wins over a bundled one of the same name."""
    found = {path.stem: path for path in sorted(BUNDLED.glob("*.yaml"))}
    if folder is not None and folder.is_dir():
        found |= {path.stem: path for path in sorted(folder.glob("*.yaml"))}
        found |= {path.stem: path for path in sorted(folder.glob("*.yml"))}
    return dict(sorted(found.items()))


def load_site(name: str, *, folder: Path | None = None) -> Site:
    """Load a site by its name or by the path of its file; raises ConfigError with every fault of the file."""
    known = site_files(folder)
    looks_like_path = "/" in name or name.endswith((".yaml", ".yml"))
    if not looks_like_path and name not in known:
        fix = did_you_mean(name, known=known, noun="known sites")
        raise ConfigError(Finding(code="site-unknown", message=f"there is no site '{name}'", fix=fix))
    path = Path(name) if looks_like_path else known[name]
    tree = _extended(path, known=known, seen=())
    decoder = Decoder(file=str(path))
    site: Site | None = decoder.table(tree, Site, key="")
    if site is None or decoder.findings:
        raise ConfigError(*decoder.findings)
    faults = [*_source_faults(site, tree=tree, file=str(path)), *_value_faults(tree, file=str(path))]
    faults += _shape_faults(site, file=str(path), stem=path.stem)
    if faults:
        raise ConfigError(*faults)
    return site


def _extended(path: Path, *, known: dict[str, Path], seen: tuple[str, ...]) -> Table:
    """Read a site file and lay it over the one it extends, table by table; lists and scalars replace."""
    value = parse_yaml(read_text(path, what="site file"), file=str(path))
    if not isinstance(value, Table):
        found = "nothing" if value is None else "no table of keys"
        message = f"the site file holds {found}"
        raise ConfigError(
            Finding(
                code="site-empty",
                message=message,
                at=Place(file=str(path)),
                fix="see `recipe sites local` for an example",
            )
        )
    parent = value.get("extends")
    if parent is None:
        return value
    at = Place(file=str(path), line=value.line_of("extends"), key="extends")
    own = Table(entries=tuple(entry for entry in value.entries if entry[0].raw != "extends"), line=value.line)
    if not isinstance(parent, Text) or parent.raw not in known:
        word = parent.raw if isinstance(parent, Text) else "this"
        fix = did_you_mean(word, known=known, noun="known sites")
        raise ConfigError(Finding(code="site-extends", message=f"there is no site '{word}' to extend", at=at, fix=fix))
    # A user's `lumi-g.yaml` may extend the bundled `lumi-g`: then the bundled file is meant.
    target = known[parent.raw] if known[parent.raw].resolve() != path.resolve() else BUNDLED / f"{parent.raw}.yaml"
    if str(target) in seen or target.resolve() == path.resolve() or len(seen) >= EXTENDS_LIMIT:
        raise ConfigError(
            Finding(
                code="site-extends", message=f"'{path.stem}' extends itself in a circle", at=at, fix="break the circle"
            )
        )
    base = _extended(target, known=known, seen=(*seen, str(path)))
    return _merged(base, own)


def _merged(base: Table, own: Table) -> Table:
    entries = {name.raw: (name, value) for name, value in base.entries}
    for name, value in own.entries:
        before = entries.get(name.raw)
        if before is not None and isinstance(before[1], Table) and isinstance(value, Table):
            value = _merged(before[1], value)
        entries[name.raw] = (name, value)
    return Table(entries=tuple(entries.values()), line=own.line)


def _source_faults(site: Site, *, tree: Table, file: str) -> Iterator[Finding]:
    """Every section names at least one source, every source is described and dated."""
    for name, source in site.sources.items():
        if not DATE.fullmatch(source.checked):
            yield _fault(
                "site-date",
                f"the source '{name}' was checked on '{source.checked}'",
                file,
                tree,
                ("sources", name, "checked"),
                "write YYYY-MM-DD, or YYYY-MM where the day is not known",
            )
    for key, section in _sections(site):
        named = section.source
        if not named:
            yield _fault(
                "site-source",
                f"'{key}' names no source",
                file,
                tree,
                (key, "source"),
                "name one of the keys of 'sources'",
            )
        for word in named:
            if word not in site.sources:
                fix = did_you_mean(word, known=site.sources, noun="known sources")
                yield _fault(
                    "site-source", f"'{key}' names the unknown source '{word}'", file, tree, (key, "source"), fix
                )


def _sections(site: Site) -> Iterator[tuple[str, Any]]:
    for field in fields(site):
        value = getattr(site, field.name)
        if is_dataclass(value) and hasattr(value, "source"):
            yield field.name, value
    yield from ((f"base_images[{index}]", image) for index, image in enumerate(site.base_images))


def _value_faults(tree: Table, *, file: str) -> Iterator[Finding]:
    """No text of a site may become a command: each goes through the pattern of its place."""
    for path, text in _texts(tree, ()):
        rule = _rule(path)
        if rule is None:
            if any((ord(character) < 32 and character != "\n") or ord(character) == 127 for character in text.raw):
                yield _text_fault(text, path, file, "a control character", "remove it")
            continue
        pattern, allowed = rule
        if not pattern.fullmatch(text.raw):
            shown = text.raw.replace("\n", "\\n")
            yield _text_fault(text, path, file, f"'{shown}'", allowed)


def _rule(path: tuple[str, ...]) -> tuple[re.Pattern[str], str] | None:
    """Give the pattern for a value's place and what to say when it does not fit; None: prose, never generated code."""
    joined = ".".join(path)
    last = path[-1]
    if path[0] in ("title", "description", "sources", "storage", "unknown", "node", "hostnames") or last in (
        "note",
        "source",
        "account_form",
        "model",
        "fabric",
    ):
        return None
    if path[0] == "name":
        return NAME, "use small letters, digits and '-'"
    if any(f".{word}" in joined for word in ("modules", "run_modules", "backend_modules")):
        return MODULE, "write 'use PATH', 'load NAME', 'unload NAME' or 'purge'"
    if last == "reference":
        return REFERENCE, "write docker://NAME:TAG or an absolute path"
    if (
        "environment" in joined
        or "binds" in joined
        or last in ("tmpdir", "cachedir", "wrapper_path")
        or path[0] == "proxy"
        or "node_local" in joined
    ):
        return EXPANSION, "plain text and ${NAME} only; no $( ), quotes or backslashes"
    if ".proxy." in joined:
        return EXPANSION, "plain text only"
    if ".unset" in joined:
        return VARIABLE, "write the name of an environment variable"
    return PLAIN, "letters, digits and _.,:+=@%/-{} only"


def _texts(value: Value, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Text]]:
    """Every scalar with its path, and every key of a table of environment variables or options as a scalar too."""
    if isinstance(value, Text):
        yield path, value
    elif isinstance(value, Table):
        for name, item in value.entries:
            yield from _texts(item, (*path, name.raw))
    else:
        for item in value.items:
            yield from _texts(item, path)


def _shape_faults(site: Site, *, file: str, stem: str) -> Iterator[Finding]:
    """What holds between keys."""

    def fault(code: str, message: str, key: str, fix: str) -> Finding:
        return Finding(code=code, message=message, at=Place(file=file, key=key), fix=fix)

    if site.name != stem:
        yield fault(
            "site-name", f"the site is named '{site.name}' in the file '{stem}'", "name", "give file and site one name"
        )
    if not site.base_images:
        yield fault("site-base", "the site has no base image", "base_images", "add at least one")
    if not site.build.backends:
        yield fault(
            "site-backend", "the site has no backend", "build.backends", "allowed: apptainer, cotainr, docker, tykky"
        )
    for name in _variables(site):
        if not VARIABLE.fullmatch(name):
            yield fault(
                "site-variable",
                f"'{name}' is no name of an environment variable",
                "launch.environment",
                "use letters, digits and _",
            )
    for purpose, job in site.scheduler.jobs.items():
        if purpose not in ("gpu", "node", "nodes", "build", "convert"):
            fix = did_you_mean(purpose, known=("gpu", "node", "nodes", "build", "convert"), noun="allowed")
            yield fault("site-job", f"there is no kind of job '{purpose}'", f"scheduler.jobs.{purpose}", fix)
        for option in job.options:
            if not OPTION.fullmatch(option):
                yield fault(
                    "site-option",
                    f"'{option}' is no long sbatch option",
                    f"scheduler.jobs.{purpose}.options",
                    "write it without dashes",
                )
    yield from _mask_faults(site, file=file)


def _mask_faults(site: Site, *, file: str) -> Iterator[Finding]:
    masks = site.launch.cpu_masks
    at = Place(file=file, key="launch.cpu_masks")
    if masks and site.gpu and len(masks) != site.gpu.devices:
        message = f"{len(masks)} CPU masks for {site.gpu.devices} devices"
        yield Finding(code="site-mask", message=message, at=at, fix="give one mask for each local rank")
    seen = 0
    for mask in masks:
        if not re.fullmatch(r"0x[0-9a-f]{1,32}", mask):
            yield Finding(code="site-mask", message=f"'{mask}' is no CPU mask", at=at, fix="write it as 0x00fe")
        elif seen & int(mask, 16):
            yield Finding(
                code="site-mask",
                message=f"the mask {mask} shares cores with another",
                at=at,
                fix="give each rank its own cores",
            )
        else:
            seen |= int(mask, 16)


def _variables(site: Site) -> Iterable[str]:
    launch = site.launch
    return (*launch.environment, *launch.multi_node_environment, *launch.rank_environment, *site.network.proxy)


def _text_fault(text: Text, path: tuple[str, ...], file: str, found: str, allowed: str) -> Finding:
    key = ".".join(path)
    message = f"the value of '{key}' holds what could become a command: {found}"
    return Finding(code="site-unsafe", message=message, at=Place(file=file, line=text.line, key=key), fix=allowed)


def _fault(code: str, message: str, file: str, tree: Table, path: tuple[str, ...], fix: str) -> Finding:
    line: int | None = None
    value: Value | None = tree
    for key in path:
        if not isinstance(value, Table):
            break
        line = value.line_of(key)
        value = value.get(key)
    return Finding(code=code, message=message, at=Place(file=file, line=line, key=".".join(path)), fix=fix)

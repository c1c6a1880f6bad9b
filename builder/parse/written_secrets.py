"""Secrets that the text of a recipe holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from builder.model.finding import Finding, Location
from builder.model.recipe import PipOptions, PipRequirement
from builder.model.secrets import (
    find_address_secret,
    find_command_secret,
    find_random_parts,
    find_value_secret,
    has_token,
)
from builder.model.text import sanitize
from builder.parse.decoder import Decoder
from builder.parse.yaml import Listing, Table, Text, Value

FIX = "take it out; give it when the image runs: `export NAME=...` in the job, or a file that is not in the image"
BUILD_FIX = "take it out; give it by the environment of the build (docs/recipes.md: Mirrors, proxies, secrets)"
PACKAGES = ("dependencies", "channels")


def check_secrets(tree: Table, *, decoder: Decoder) -> None:
    """Report every secret of a recipe's file, without repeating it."""
    for name, value in tree.entries:
        if name.raw in PACKAGES:
            continue
        for key, label, item in _list_texts(value, name.raw):
            kind = "command" if key.startswith("container.run[") else "value"
            if has_token(label):
                decoder.add_fault(
                    "secret", "a name looks like a token", line=item.line, key=key.rpartition(".")[0], fix=FIX
                )
            if kind == "command":
                found, fix = find_command_secret(item.raw), BUILD_FIX
            elif key == "container.base":
                found, fix = find_address_secret(item.raw, words=True), BUILD_FIX
            else:
                found, fix = find_value_secret(label, item.raw), FIX
            if found:
                message = f"the {kind} holds {found}, and it would be in the image"
                decoder.add_fault("secret", message, line=item.line, key=sanitize(key), fix=fix)


def _list_texts(value: Value, key: str, label: str = "") -> Iterator[tuple[str, str, Text]]:
    """Every text below a key: its path, the name right above it, itself."""
    if isinstance(value, Text):
        yield key, label, value
    elif isinstance(value, Table):
        for name, item in value.entries:
            yield from _list_texts(item, f"{key}.{name.raw}", name.raw)
    elif isinstance(value, Listing):
        for index, item in enumerate(value.items):
            yield from _list_texts(item, f"{key}[{index}]")


def check_addresses(pip: Iterable[PipRequirement], options: PipOptions, *, file: str) -> Iterator[Finding]:
    """Warn of addresses with a part that looks like a token: some indexes have it in the path."""
    places = [(line.url, Location(file=line.file or file, line=line.line)) for line in pip if line.url]
    plain = (options.index_url, *options.extra_index_urls, *options.find_links)
    places += [(address, Location(file=file)) for address in plain if address]
    for address, at in places:
        if "://" in address and any(find_random_parts(address)):
            message = "a part of an address's path looks like a token, and the address is kept in the image"
            fix = "if it is one, remove the line and give the index by PIP_INDEX_URL or UV_DEFAULT_INDEX when building"
            yield Finding(code="secret-path", message=message, at=at, fix=fix, level="warning")

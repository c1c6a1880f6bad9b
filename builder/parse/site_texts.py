"""What each text of a site may contain: a pattern for its key path. Keys are texts too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from builder.model.finding import Finding, Location
from builder.model.text import CONTROL, VARIABLE, sanitize
from builder.parse.yaml import Listing, Table, Text, Value

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
KEY = re.compile(r"[A-Za-z0-9_.-]+")
MODULE = re.compile(r"purge|(?:use|load|unload) [A-Za-z0-9_.+/:-]+")
PLAIN = re.compile(r"[A-Za-z0-9_.,:+=@%/{}-]*")
# ${NAME} is the one thing that a shell may expand in a site's value; $ and ` in any other form are refused.
CHARACTER = r"[^$`\\\"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
VARIABLE_NAMED = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
EXPANSION = re.compile(rf"(?:{CHARACTER}|{VARIABLE_NAMED})*")
BIND = re.compile(rf"(?=[/$])(?:(?!,){CHARACTER}|{VARIABLE_NAMED})+")
REFERENCE = re.compile(r"(?:(?:docker|oras|library)://[A-Za-z0-9]|/)[A-Za-z0-9_./:@+-]*")
PORT = re.compile(r"([1-9][0-9]{3,4})(\+job)?|free")
FORM = re.compile(r"[A-Za-z0-9_.@+<>{}\[\]|:/ -]*")  # of an account, for people

# Key paths; "*" is any key of a table. Prose is never in generated code: it is only printed.
SECTIONS = ("node", "gpu", "network", "scheduler", "runtime", "build", "launch", "base_images")
PROSE = (
    ("title",),
    ("description",),
    ("storage",),
    ("unknown",),
    ("hostnames",),
    ("sources", "*", "what"),
    ("sources", "*", "checked"),
    ("node", "os"),
    ("gpu", "model"),
    ("gpu", "unsure"),
    ("base_images", "unsure"),
    ("network", "fabric"),
    ("launch", "torchrun_refused"),
    *((section, word) for section in SECTIONS for word in ("note", "source")),
)
KEY_ITSELF = "(key)"
SEVERAL_LINES = ("note", "storage", "what")

Rule = tuple[re.Pattern[str], str]
EXPANDED: Rule = (EXPANSION, "plain text and ${NAME} only; no $( ), quotes or backslashes")
MODULES: Rule = (MODULE, "write 'use PATH', 'load NAME', 'unload NAME' or 'purge'")
BINDS: Rule = (BIND, "write an absolute path, with ${NAME} if need be; one path an item, no commas")
SETTINGS = ("environment", "one_node_environment", "multi_node_environment", "rank_environment")
PORTS = "give a port from 1024 to 65535, one to which the job's number is added: 10000+job, or free"
NAMED: Rule = (VARIABLE, "write the name of an environment variable")
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("name",), (NAME, "use small letters, digits and '-'")),
    (("runtime", "modules"), MODULES),
    (("runtime", "run_modules"), MODULES),
    (("build", "modules"), MODULES),
    (("build", "backend_modules", "*"), MODULES),
    (("base_images", "reference"), (REFERENCE, "write docker://NAME:TAG or an absolute path")),
    (("runtime", "binds"), BINDS),
    (("runtime", "optional_binds"), BINDS),
    (("build", "tmpdir"), EXPANDED),
    (("build", "cachedir"), EXPANDED),
    (("build", "wrapper_path"), EXPANDED),
    (("launch", "node_local_dirs"), EXPANDED),
    (("network", "proxy", "*"), EXPANDED),
    (("network", "proxy", "*", KEY_ITSELF), NAMED),
    *((("launch", table, "*"), EXPANDED) for table in SETTINGS),
    *((("launch", table, "*", KEY_ITSELF), NAMED) for table in SETTINGS),
    (("launch", "unset"), NAMED),
    (("launch", "master_port"), (PORT, PORTS)),
    (("scheduler", "account_form"), (FORM, "letters, digits, blanks and _.@+<>{}[]|:/- only")),
)
OTHERS: Rule = (PLAIN, "letters, digits and _.,:+=@%/-{} only")


def check_texts(tree: Table) -> Iterator[Finding]:
    """No text of a site may become a command: each is checked against the pattern of its key path."""
    for path, key, text in _list_texts(tree, (), ""):
        rule = _find_rule(path)
        if rule is None:
            plain = text.raw.replace("\n", "") if path[-1] in SEVERAL_LINES else text.raw
            if CONTROL.search(plain):
                yield _make_fault(f"'{key}' holds a control character", key, "remove it; write one line")
        elif not rule[0].fullmatch(text.raw):
            what = "as a key" if path[-1] == KEY_ITSELF else f"in '{key}'"
            yield _make_fault(f"'{sanitize(text.raw)}' is not allowed {what}", key, rule[1])


@cache
def _find_rule(path: tuple[str, ...]) -> Rule | None:
    """Return the pattern for a key path and the message for a mismatch; None: prose."""
    prose, rules = _list_rules_below(path[0])
    if any(_matches_path(path, place) for place in prose):
        return None
    own = next((rule for place, rule in rules if _matches_path(path, place)), None)
    if own is None and path[-1] == KEY_ITSELF:
        return KEY, "use letters, digits and _.- in keys"
    return own or OTHERS


@cache
def _list_rules_below(section: str) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[tuple[str, ...], Rule], ...]]:
    """Return the key paths of prose, and those with a pattern, in one section: a site has hundreds of texts."""
    prose = tuple(place for place in PROSE if place[0] == section)
    return prose, tuple((place, rule) for place, rule in RULES if place[0] == section)


def _matches_path(path: tuple[str, ...], place: tuple[str, ...]) -> bool:
    """Whether a key path matches; "*" is a key of a table, but not of the path itself."""
    return len(path) == len(place) and all(
        word == wanted or (wanted == "*" and word != KEY_ITSELF) for word, wanted in zip(path, place, strict=True)
    )


def _list_texts(value: Value, path: tuple[str, ...], key: str) -> Iterator[tuple[tuple[str, ...], str, Text]]:
    """Every scalar with its path, without and with the places in lists, and every key as a scalar too."""
    if isinstance(value, Text):
        yield path, key, value
    elif isinstance(value, Listing):
        for index, item in enumerate(value.items):
            yield from _list_texts(item, path, f"{key}[{index}]")
    else:
        for name, item in value.entries:
            below = f"{key}.{name.raw}".lstrip(".")
            yield (*path, name.raw, KEY_ITSELF), below, name
            yield from _list_texts(item, (*path, name.raw), below)


def _make_fault(message: str, key: str, fix: str) -> Finding:
    return Finding(code="site-unsafe", message=message, at=Location(key=key), fix=fix)

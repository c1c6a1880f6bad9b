"""A recipe whose every value would like to be a command, and what is found when one of them was obeyed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# Obeyed, each leaves a file of this name somewhere; nothing else is ever named so.
CANARY = "CANARY"
PAYLOADS = (
    "$(touch CANARY)",
    "`touch CANARY`",
    "'; touch CANARY; '",
    '"; touch CANARY; "',
    "'\"'\"'; touch CANARY; #",
    "&& touch CANARY",
    "|| touch CANARY",
    "| tee CANARY",
    ">CANARY",
    "<(touch CANARY)",
    "${X:=$(touch CANARY)}",
    "$((CANARY[$(touch CANARY)]))",
    "\\$(touch CANARY)",
    "\\\\$(touch /opt/CANARY)",
    "$(touch /tmp/CANARY)",
    "{{ 7 * 7 }}",
    "{{ ''.__class__ }}",
    "{% raw %}",
    "{% endraw %}{% for x in y %}",
    "{# comment #}",
    "%post",
    "%post touch CANARY",
    "%environment",
    "# comment",
    "EOF",
    "<<EOF",
    "!!python/object/apply:os.system [touch CANARY]",
    "&anchor *alias",
    "a: b",
    "- item",
    "--build-arg",
    "-v /:/host",
    "RUN touch CANARY",
    "$HOME ${HOME} $PATH ${UNSET_NAME} $1 $@ $$ $?",
    "~ * ? [a] {a,b} !x ^x",
    'it\'s "so" \\ \\n \\t \\',
    "  spaces  ",
    "é 日本 ",
    "100%s%d%n",
    "$'\\x24(touch CANARY)'",
    "",
)
# Names of files in a folder that is copied as it is; the newline is kept apart, since a Docker context is a tar.
FILE_NAMES = (
    "a b", "it's", 'say "so"', "$(touch CANARY)", "`touch CANARY`", "; touch CANARY", "{{ x }}", "{% raw %}", "%post",
    "-rf", "--help", "*", "back\\slash", "#x", "a&b|c", "tab\there", "new\nline", "é日本",
)  # fmt: skip


def values() -> dict[str, str]:
    """Environment variables with every payload."""
    return {f"V{number}": payload for number, payload in enumerate(PAYLOADS)}


def document(*, keys: tuple[str, ...] = ("files", "labels", "run")) -> dict[str, Any]:
    """The recipe as plain data, as hostile as its loader lets it be; `keys` of container that a backend can serve."""
    container: dict[str, Any] = {
        "env": values(),
        "files": {"data": "/opt/data", "plain@1,2=3+4.txt": "/opt/deep/plain@1,2=3+4.txt"},
        "labels": {f"label.{number}": payload for number, payload in enumerate(PAYLOADS) if payload},
        # Commands are meant to be run: this one only says what it was given.
        "run": ["printf '%s\\n' '{{ x }} {% raw %} %post $(touch CANARY) <<EOF' \"it's\" >/opt/ran"],
        "smoke": {"imports": ["json", "os.path"]},
    }
    return {
        "name": "Hostile_recipe.+-1",
        "channels": ["conda-forge"],
        "dependencies": [{"pip": ["six==1.16.0 ; sys_platform == '(touch CANARY)' and python_version != \"*\""]}],
        "variables": {"W": "$(touch CANARY) `touch CANARY` {{ x }}"},
        "container": {name: value for name, value in container.items() if name in ("env", "smoke", *keys)},
    }


def write(folder: Path, content: dict[str, Any]) -> Path:
    """Write the recipe and the files that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for name in FILE_NAMES:
        (data / name).write_text(name, encoding="utf-8")
    (folder / "plain@1,2=3+4.txt").write_text("plain", encoding="utf-8")
    path = folder / "hostile.yml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return path


def canaries(*folders: Path) -> list[str]:
    """Every file that an obeyed payload has left."""
    return [str(path) for folder in folders for path in folder.rglob(CANARY)]

"""The options of Tykky's programs, as data.

Source: CSCfi/hpc-container-wrapper, frontends/conda-containerize.py, wrap-container.py, wrap-install.py and
script_shared.py, tag v0.4.2 (LUMI's module), read and run on 2026-11-23; --uv and --nocache of conda-containerize came
with v0.5.0, the two wrap programs have the same options in both.
"""

from __future__ import annotations

import argparse

NEW_0_4_2 = {
    "--prefix": {},
    "--mamba": {"action": "store_true"},
    "--post-install": {},
    "--pre-install": {},
    "--environ": {},
    "--wrapper-paths": {"short": "-w"},
    "--requirement": {"short": "-r"},
}
UPDATE_0_4_2 = {name: NEW_0_4_2[name] for name in NEW_0_4_2 if name not in ("--prefix", "--mamba")}
SINCE_0_5 = ("--uv", "--nocache")


WRAP_0_4_2 = {
    "wrap-container": {
        "--environ": {},
        "--wrapper-paths": {"short": "-w"},
        "--prefix": {},
        "--yaml": {"short": "-y"},
    },
    "wrap-install": {
        "--post-install": {},
        "--pre-install": {},
        "--environ": {},
        "--wrapper-paths": {"short": "-w"},
        "--prefix": {},
        "--yaml": {"short": "-y"},
        "--mask": {"action": "store_true"},
    },
}


def wrap_parser_0_4_2(program: str) -> argparse.ArgumentParser:
    """A parser that takes what wrap-container or wrap-install of 0.4.2 takes, and nothing else."""
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    _add_options(parser, WRAP_0_4_2[program])
    parser.add_argument("container" if program == "wrap-container" else "dir")
    return parser


def parser_0_4_2() -> argparse.ArgumentParser:
    """A parser that takes what 0.4.2 takes for `new` and `update`, and nothing else."""
    parser = argparse.ArgumentParser(prog="conda-containerize")
    commands = parser.add_subparsers(dest="command", required=True)
    new, update = commands.add_parser("new"), commands.add_parser("update")
    _add_options(new, NEW_0_4_2)
    new.add_argument("env_file")
    _add_options(update, UPDATE_0_4_2)
    update.add_argument("dir")
    return parser


def _add_options(parser: argparse.ArgumentParser, options: dict) -> None:
    for name, given in options.items():
        more = dict(given)
        short = more.pop("short", None)
        parser.add_argument(*([short] if short else []), name, **more)

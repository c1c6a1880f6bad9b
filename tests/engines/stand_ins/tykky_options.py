"""The options of Tykky's `conda-containerize`, as data.

Source: CSCfi/hpc-container-wrapper, frontends/conda-containerize.py and script_shared.py, tag v0.4.2 (LUMI's module);
--uv and --nocache came with v0.5.0.
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
SINCE_0_5 = ("--uv", "--nocache")


def parser_0_4_2() -> argparse.ArgumentParser:
    """A parser that takes what 0.4.2 takes for `new`, and nothing else."""
    parser = argparse.ArgumentParser(prog="conda-containerize")
    new = parser.add_subparsers(dest="command", required=True).add_parser("new")
    for name, given in NEW_0_4_2.items():
        more = dict(given)
        short = more.pop("short", None)
        new.add_argument(*([short] if short else []), name, **more)
    new.add_argument("env_file")
    return parser

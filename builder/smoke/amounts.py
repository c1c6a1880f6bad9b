"""Parse the values of the command line: numbers, sizes, masks, pairs; each error message is one sentence."""

from __future__ import annotations

import argparse
import re
from typing import Tuple

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_count(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or not 1 <= int(text) < 10**15:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number from 1')
    return int(text)


def parse_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e7:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds over 0')
    return found


def parse_time(text: str) -> float:
    """Parse a time in seconds since 1970."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e11:
        raise argparse.ArgumentTypeError(f'"{text}" is not a time in seconds since 1970')
    return found


def parse_size(text: str) -> int:
    """Parse a number of bytes: 32KiB, 128MiB, 4GB (10^9), or without unit."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([KMG]i?B|B|)", text, re.IGNORECASE)
    if found is None or not 4096 <= int(found[1]) * _UNITS[found[2].upper()] < 1 << 50:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size from 4096 bytes, such as 32KiB or 4GB')
    return int(found[1]) * _UNITS[found[2].upper()]


def parse_floor(text: str) -> Tuple[int, float]:
    """Parse a size and the expected bandwidth in GB/s."""
    where, _, bandwidth = text.partition("=")
    try:
        found = float(bandwidth)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f'"{text}" is not SIZE=GBPS, such as 128MiB=85')
    return parse_size(where), found


def parse_masks(text: str) -> Tuple[int, ...]:
    """Parse masks of CPU cores, in hexadecimal with or without 0x."""
    parts = text.split(",")
    if not all(re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,512}", part) and int(part, 16) for part in parts):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of CPU masks in hexadecimal, such as 0xfe,0xfe00')
    return tuple(int(part, 16) for part in parts)


def parse_variable(text: str) -> Tuple[str, str]:
    """Parse a variable's name and value."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise argparse.ArgumentTypeError(f'"{text}" is not NAME=VALUE')
    return name, value


def parse_names(text: str) -> Tuple[str, ...]:
    found = tuple(part for part in text.split(",") if part)
    if not all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in found):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of workloads, such as mnist,ddp')
    return found


def format_size(number: int) -> str:
    """Format a number of bytes: 128 MiB, 4 GB, 5000 B."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 10**9), ("MB", 10**6)):
        if number >= factor and number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number} B"

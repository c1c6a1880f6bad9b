"""Whether a wheel or an extension module is for a Python, by its tags (3.12; 3.13t is the free-threaded build)."""

from __future__ import annotations

from .elf import numbers


def fits_module(built: str, python: str) -> bool:
    """Whether an extension module is loaded; source: PEP 3149, PEP 384, PEP 703 (no stable ABI without the GIL)."""
    return built == python or (built == "abi3" and not python.endswith("t"))


def fits_tag(tag: str, python: str) -> bool:
    """Whether a wheel is installed; source: "Platform compatibility tags", packaging.python.org, read 2026-11-23."""
    parts = tag.split("-")
    if len(parts) != 3:
        return True
    return any(_fits(one, abi, python) for one in parts[0].split(".") for abi in parts[1].split("."))


def _fits(interpreter: str, abi: str, python: str) -> bool:
    free = python.endswith("t")
    have = numbers(python.removesuffix("t"))
    kind, number = interpreter[:2], interpreter[2:]
    built = (int(number[0]), *([int(number[1:])] if number[1:].isdigit() else [])) if number.isdigit() else ()
    if kind == "py":
        return abi == "none" and have[: len(built)] >= built
    if kind != "cp" or not built:
        return False
    if abi == "none":
        return have >= built
    if abi == "abi3":
        return not free and have >= built
    return built == have and abi == f"cp{number}{'t' if free else ''}"

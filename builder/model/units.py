"""Numbers as text: few digits, and always the unit."""

from __future__ import annotations

import math


def format_number(value: float | None, *, digits: int = 3) -> str:
    """Write a number with so many significant digits, "-" for none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > 6 or places < -9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(places, 0)}f}"


def format_tick(value: float) -> str:
    """Write the number of a tick without trailing zeros."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-4):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:.6f}".rstrip("0").rstrip(".")


def format_duration(seconds: float | None) -> str:
    """Write a time in the unit a reader would choose: 32 ms, 4.1 s, 2 min 05 s, 1 h 10 min."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return "0 s" if seconds == 0 else f"{format_number(seconds * 1000, digits=2 if seconds < 0.01 else 3)} ms"
    return format_clock(seconds)


def format_clock(seconds: float) -> str:
    """Write a time that may still grow: 0.3 s, 4.1 s, 2 min 05 s, 1 h 10 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_bytes(count: float | None) -> str:
    """Write bytes in powers of ten, as disks are sold: 512 B, 34 MB, 1.25 GB."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def format_ratio(value: float | None) -> str:
    """Write a quotient of two measurements."""
    return "-" if value is None else f"{format_number(value)}×"

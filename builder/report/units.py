"""Numbers as text: few digits, and always the unit."""

from __future__ import annotations

import math
from datetime import datetime, timezone


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
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_size(count: int) -> str:
    """Write a message size in binary units, as sweeps step in them."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{format_tick(round(count / (1 << power), 2))} {unit}"
    return f"{count} B"


def format_bytes(count: int | None) -> str:
    """Write a file's size in MB or GB (powers of ten, as disks are sold)."""
    if count is None:
        return "-"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{format_number(count / 1e6)} MB"


def format_ratio(value: float | None) -> str:
    """Write a quotient of two measurements."""
    return "-" if value is None else f"{format_number(value)}×"


def format_time(stamp: str) -> str:
    """Write a time of ISO 8601 in UTC, and in the zone of this machine where that is another one."""
    try:
        found = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
        utc, local = found.astimezone(timezone.utc), found.astimezone()
    except (ValueError, OverflowError):
        return stamp
    here = f" ({local:%Y-%m-%d %H:%M} {local.tzname()})" if local.utcoffset() else ""
    return f"{utc:%Y-%m-%d %H:%M} UTC{here}"

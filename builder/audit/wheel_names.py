"""The label of a variant wheel in its file name (PEP 825, draft of 2026-02-17)."""

from __future__ import annotations

import re

LABEL = re.compile(r"[0-9a-z_.]{1,16}")


def find_label(file_name: str) -> str:
    """The variant label in the file name of a wheel, "" where there is none: a build number begins with a digit."""
    parts = file_name.removesuffix(".whl").split("-")
    most = 6 if len(parts) > 2 and parts[2][:1].isdigit() else 5
    label = parts[-1] if file_name.endswith(".whl") and len(parts) == most + 1 else ""
    return label if LABEL.fullmatch(label) else ""


def drop_label(file_name: str) -> str:
    """The file name of a wheel without its variant label: installers that do not know variants take it."""
    label = find_label(file_name)
    return f"{file_name.removesuffix(f'-{label}.whl')}.whl" if label else file_name

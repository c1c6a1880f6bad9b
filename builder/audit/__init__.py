"""The audit of what runs on which GPU; here the names of its files in a plan folder and the code of its finding."""

from __future__ import annotations

PLAN, REPORT = "audit.json", "gpu-audit.json"
CODE = "gpu-audit"

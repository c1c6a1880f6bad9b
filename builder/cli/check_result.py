"""What a recipe becomes on a site, as `recipe check` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from builder.model.finding import Finding, errors
from builder.model.plan import Package


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a recipe becomes on a site; "" where there is no torch, or no base image was chosen."""

    site: str
    file: str = ""
    torch: str = ""
    base: str = ""
    packages: tuple[Package, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def word(self) -> str:
        """One word for a table."""
        refused = errors(self.findings)
        if refused:
            return f"refused: {refused[0].code}"
        return "warnings" if any(finding.level == "warning" for finding in self.findings) else "ok"

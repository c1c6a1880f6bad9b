"""The result of a recipe on a site, as `recipe check` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from builder.model.finding import Finding, select_errors
from builder.model.plan import PackageDecision


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of a recipe on a site; "" for no torch, or no base image."""

    site: str
    file: str = ""
    torch: str = ""
    base: str = ""
    packages: tuple[PackageDecision, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def word(self) -> str:
        """The result as one word of a table."""
        refused = select_errors(self.findings)
        if refused:
            return f"refused: {refused[0].code}"
        return "warnings" if any(finding.level == "warning" for finding in self.findings) else "ok"

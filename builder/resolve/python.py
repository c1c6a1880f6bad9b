"""The Python that a recipe asks for: one version, a range, or any."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from builder.model.recipe import CondaSpec, Recipe
from builder.resolve.names import conda_to_specifier

# A range such as >=3.12.4 leaves some patch releases of 3.12: these are tried. No series had more than 30.
PATCHES = (*range(31), 99)


@dataclass(frozen=True, kw_only=True)
class PythonPin:
    """`minor` is X.Y where the request fixes it, `range` what else it says; `spec` is the dependency, if any."""

    minor: str | None = None
    range: str = ""
    spec: CondaSpec | None = None

    def allows(self, minor: str) -> bool:
        """Whether a Python X.Y can serve the request."""
        if self.minor is not None:
            return self.minor == minor
        wanted = SpecifierSet(self.range)
        return not self.range or any(wanted.contains(f"{minor}.{patch}") for patch in PATCHES)

    @property
    def text(self) -> str:
        """The request as a message says it."""
        return self.minor or self.range or "any"

    def fixed_to(self, minor: str) -> str:
        """The conda dependency for one of the Pythons that the request allows."""
        if self.spec is not None and self.minor is not None:
            return self.spec.text
        return f"python{self.spec.version},{minor}.*" if self.spec and self.range else f"python={minor}"


def python_pin(recipe: Recipe) -> PythonPin:
    """Read the Python of a recipe's conda dependencies."""
    spec = next((spec for spec in recipe.conda if spec.name == "python"), None)
    if spec is None:
        return PythonPin()
    specifier = conda_to_specifier(spec.version) or ""
    number = specifier.removeprefix("==").split(",")[0]
    parts = number.split(".")
    if specifier.startswith("==") and len(parts) >= 2 and parts[1] != "*":
        return PythonPin(minor=".".join(parts[:2]), spec=spec)
    return PythonPin(range=specifier, spec=spec)

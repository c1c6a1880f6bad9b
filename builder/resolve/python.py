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
    """`minor` is X.Y where the request fixes it, `range` what else it says; `spec` is the dependency, if any.

    A range is of PEP 440, or several of them with `|` between: one of them is enough.
    """

    minor: str | None = None
    range: str = ""
    spec: CondaSpec | None = None

    def allows(self, minor: str) -> bool:
        """Whether a Python X.Y can serve the request."""
        if self.minor is not None:
            return self.minor == minor
        wanted = [SpecifierSet(part) for part in self.range.split("|")]
        return any(one.contains(f"{minor}.{patch}") for one in wanted for patch in PATCHES)

    @property
    def text(self) -> str:
        """The request as a message says it."""
        return self.minor or self.range or "any"

    def fixed_to(self, minor: str) -> str:
        """The conda dependency for one of the Pythons that the request allows."""
        if self.spec is not None and self.minor is not None:
            return self.spec.text
        if self.spec is None or not self.range:
            return f"python={minor}"
        return "python" + "|".join(f"{part},{minor}.*" for part in self.spec.version.split("|"))


def python_pin(recipe: Recipe) -> PythonPin:
    """Read the Python of a recipe's conda dependencies."""
    spec = next((spec for spec in recipe.conda if spec.name == "python"), None)
    if spec is None:
        return PythonPin()
    parts = [conda_to_specifier(part) for part in spec.version.split("|")]
    if len(parts) > 1:
        return PythonPin(range="" if "" in parts else "|".join(filter(None, parts)), spec=spec)
    specifier = parts[0] or ""
    number = specifier.removeprefix("==").split(",")[0]
    numbers = number.split(".")
    if specifier.startswith("==") and len(numbers) >= 2 and numbers[1] != "*":
        return PythonPin(minor=".".join(numbers[:2]), spec=spec)
    return PythonPin(range=specifier, spec=spec)

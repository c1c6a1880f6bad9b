"""The torch and companions that a recipe requests: by pip, conda, constraints or the address of a wheel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import compress
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.model.finding import Location
from builder.model.plan import PackageDecision
from builder.model.recipe import PipRequirement, Recipe
from builder.resolve.conda_names import find_python_name, load_name_table, to_specifier

FAMILY = ("torch", "torchvision", "torchaudio")
COMPANIONS = ("torchvision", "torchaudio")
TRITON = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton-xpu", "triton-xpu")

# Packages that must not change in an image with its own torch; names that the image lacks have no effect.
PROTECTED_PACKAGES = (
    *FAMILY,
    *TRITON,
    "apex",
    "flash-attn",
    "intel-extension-for-pytorch",
    "oneccl-bind-pt",
    "oneccl-bindings-for-pytorch",
    "pytorch-quantization",
    "torch-tensorrt",
    "transformer-engine",
)

# Values of every site, besides its platform_machine; the installer evaluates markers on anything else.
LINUX_MARKERS = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
_WHEEL = re.compile(r"(?:^|[/=])(?P<name>torch|torchvision|torchaudio)-(?P<version>[^-/]+)-[^/]*\.whl(?:[?#].*)?$")


@dataclass(frozen=True, kw_only=True)
class RequestedTorch:
    """The request for one package of the torch family; `local` is the local version it pins, if any.

    `unclear`: it names a source or a version that cannot be compared with releases.
    """

    name: str
    specifier: SpecifierSet
    local: str = ""
    text: str = ""
    location: Location | None = None
    unclear: bool = False
    conda: bool = False  # a dependency of conda's, whose releases may have other numbers
    parts: tuple[RequestedTorch, ...] = ()  # the requests that were merged into this one

    @property
    def pinned(self) -> str:
        """The one public version that is requested, "" for a range."""
        exact = [item.version for item in self.specifier if item.operator in ("==", "===") and "*" not in item.version]
        return exact[0] if len(exact) == 1 else ""

    def allows(self, version: str) -> bool:
        """Whether a version fits; pre-releases count as their release (NGC's 2.8.0a0 is 2.8.0)."""
        return _fits(self._range, version)

    @cached_property
    def _range(self) -> str:
        return str(self.specifier)

    def merge(self, other: RequestedTorch) -> RequestedTorch:
        """Merge two requests; text and location are those of the first."""
        local, unclear = self.local or other.local, self.unclear or other.unclear
        parts = (*(self.parts or (self,)), *(other.parts or (other,)))
        return replace(self, specifier=self.specifier & other.specifier, local=local, unclear=unclear, parts=parts)


def is_empty(specifier: SpecifierSet) -> bool:
    """Whether no version can match: the lower bound is not below the upper one."""
    bounds = [(one.operator, Version(one.version)) for one in specifier if one.operator in (">", ">=", "<", "<=")]
    lowest = max((found for found in bounds if found[0].startswith(">")), key=lambda one: one[1], default=None)
    highest = min((found for found in bounds if found[0].startswith("<")), key=lambda one: one[1], default=None)
    if lowest is None or highest is None:
        return False
    return lowest[1] > highest[1] or (lowest[1] == highest[1] and (lowest[0], highest[0]) != (">=", "<="))


@lru_cache(maxsize=4096)
def _fits(specifier: str, version: str) -> bool:
    """Cached, because the same few versions are compared for every image of a family; text compares fast."""
    base = to_release(version)
    return base is not None and SpecifierSet(specifier).contains(base, prereleases=True)


@cache
def to_release(version: str) -> Version | None:
    """Convert a version to its release: 2.8.0 for 2.8.0a0+5228986c39; None if it is not a version."""
    try:
        return Version(Version(version).base_version)
    except ValueError:  # of packaging, and of int() for thousands of digits
        return None


def find_requested_family(recipe: Recipe) -> dict[str, RequestedTorch]:
    """Collect the requests for torch, torchvision and torchaudio; constraints apply to requested packages."""
    asked: dict[str, RequestedTorch] = {}
    for item in [*_read_pip(recipe.pip, recipe=recipe), *_read_conda(recipe)]:
        asked[item.name] = asked[item.name].merge(item) if item.name in asked else item
    for item in _read_pip(recipe.pip_options.constraints, recipe=recipe):
        if item.name in asked:
            asked[item.name] = asked[item.name].merge(item)
        elif item.name == "torch" and (asked or find_torch_dependent(recipe)):
            asked[item.name] = item
    return asked


def _read_pip(lines: tuple[PipRequirement, ...], *, recipe: Recipe) -> list[RequestedTorch]:
    found = []
    for line in lines:
        wheel = _wheel(line)
        name = find_family_name(line)
        if not name:
            continue
        place = Location(file=line.file or recipe.file, line=line.line)
        public, local = _without_local(f"=={wheel['version']}" if wheel else line.specifier)
        unclear = bool(line.url) and wheel is None
        found.append(
            RequestedTorch(name=name, specifier=public, local=local, text=line.text, location=place, unclear=unclear)
        )
    return found


def find_family_name(line: PipRequirement) -> str:
    """Return the torch family package that a requirement names, by its name or wheel; "" for any other."""
    wheel = _wheel(line)
    return wheel["name"] if wheel else line.name if line.name in FAMILY else ""


def _wheel(line: PipRequirement) -> re.Match[str] | None:
    return _WHEEL.search(unquote(line.url)) if line.url else None


def _read_conda(recipe: Recipe) -> list[RequestedTorch]:
    found = []
    for spec in recipe.conda:
        name = find_python_name(spec.name) or ""
        if name in FAMILY:
            place = Location(file=recipe.file, line=spec.line)
            specifier = to_specifier(spec.version)
            unclear = specifier is None or bool(spec.url)
            wanted = SpecifierSet(specifier or "")
            found.append(
                RequestedTorch(name=name, specifier=wanted, text=spec.text, location=place, unclear=unclear, conda=True)
            )
    return found


def find_torch_dependent(recipe: Recipe) -> str:
    """Return the first package of the recipe that requires torch, "" if none does."""
    table = load_name_table()
    names = [line.name for line in recipe.pip if line.name in table.bring_torch or "torch" in line.extras]
    conda = (find_python_name(spec.name) or str(canonicalize_name(spec.name)) for spec in recipe.conda)
    return next((name for name in (*names, *conda) if name in names or name in table.bring_torch), "")


def add_brought(recipe: Recipe, brought: Iterable[str]) -> Recipe:
    """Add requirements of the torch family that were looked up, such as torch==2.8.0, and that no line has."""
    asked = find_requested_family(recipe)
    parts = [(text, *text.partition("==")) for text in brought]
    lines = [
        PipRequirement(text=text, name=name, specifier=f"{sign}{version}", file=recipe.file)
        for text, name, sign, version in parts
        if name in FAMILY and name not in asked
    ]
    return replace(recipe, pip=(*recipe.pip, *lines)) if lines else recipe


def select_linux(recipe: Recipe, *, arch: str) -> tuple[Recipe, tuple[PackageDecision, ...]]:
    """Drop the requirements whose markers are for other systems or processors; return the decision on each."""
    kept = tuple(line for line in recipe.pip if _applies(line, arch=arch))
    dropped = tuple(line.text for line in recipe.pip if not _applies(line, arch=arch))
    why = "its marker is for another system or processor"
    return replace(recipe, pip=kept), tuple(PackageDecision(asked=text, became="-", why=why) for text in dropped)


def select_python(recipe: Recipe, minor: str | None, *, arch: str) -> tuple[Recipe, tuple[PackageDecision, ...]]:
    """Drop the requirements whose markers are for another Python than X.Y; return the decision on each.

    If the patch release decides, the installer evaluates the marker.
    """
    served = [minor is None or _serves(line, minor, arch=arch) for line in recipe.pip]
    kept = tuple(compress(recipe.pip, served))
    dropped = [line.text for line, serves in zip(recipe.pip, served, strict=True) if not serves]
    why = f"its marker is for another Python than {minor}"
    return replace(recipe, pip=kept), tuple(PackageDecision(asked=text, became="-", why=why) for text in dropped)


def _serves(line: PipRequirement, minor: str, *, arch: str) -> bool:
    if not line.marker:
        return True
    marker = Marker(line.marker)
    world = {**LINUX_MARKERS, "platform_machine": arch, "extra": "", "python_version": minor}
    patches = (f"{minor}.{patch}" for patch in (0, 99))
    return any(marker.evaluate({**world, "python_full_version": one, "implementation_version": one}) for one in patches)


def _applies(line: PipRequirement, *, arch: str) -> bool:
    """Evaluate a marker on the system; the installer evaluates one that also depends on the Python."""
    if not line.marker or "python" in line.marker.replace("platform_python_implementation", ""):
        return True
    return Marker(line.marker).evaluate({**LINUX_MARKERS, "platform_machine": arch, "extra": ""})


def _without_local(specifier: str) -> tuple[SpecifierSet, str]:
    """Split `==2.6.0+rocm6.2.4` into `==2.6.0` and `rocm6.2.4`."""
    local = ""
    public: list[str] = []
    for part in filter(None, (item.strip() for item in specifier.split(","))):
        version, plus, tail = part.partition("+")
        public.append(version)
        local = tail if plus else local
    try:
        return SpecifierSet(",".join(public)), local
    except InvalidSpecifier:
        return SpecifierSet(), local

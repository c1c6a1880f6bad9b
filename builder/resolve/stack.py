"""Which build of torch serves a site: release, token and index, from the tables; or the reason why none does."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from builder.model.finding import Finding, Place
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.stack import TorchRelease, driver_table, torch_table
from builder.model.target import DEFAULT_INDEX, Torch
from builder.resolve.names import conda_to_specifier, name_table, python_name

FAMILY = ("torch", "torchvision", "torchaudio")
COMPANIONS = ("torchvision", "torchaudio")
VENDOR_OF_TOKEN = {"cu": "nvidia", "rocm": "amd", "xpu": "intel", "cpu": "cpu"}


@dataclass(frozen=True, kw_only=True)
class AskedTorch:
    """What the recipe says of one package of the torch family; `local` is the local version it pins, if any."""

    name: str
    specifier: SpecifierSet
    local: str = ""
    text: str = ""
    place: Place | None = None

    @property
    def pinned(self) -> str:
        """The one public version it asks for, empty for a range."""
        exact = [item.version for item in self.specifier if item.operator in ("==", "===") and "*" not in item.version]
        return exact[0] if len(exact) == 1 else ""

    def allows(self, version: str) -> bool:
        """Whether a version fits, pre-releases counting as the release they lead to (NGC's 2.8.0a0 is 2.8.0)."""
        try:
            return self.specifier.contains(Version(version).base_version, prereleases=True)
        except InvalidVersion:
            return False


def asked_family(recipe: Recipe) -> dict[str, AskedTorch]:
    """Collect what the recipe asks of torch, torchvision and torchaudio, from its pip and its conda dependencies."""
    asked: dict[str, AskedTorch] = {}
    for line in recipe.pip:
        if line.name in FAMILY and not line.url:
            place = Place(file=line.file or recipe.file, line=line.line)
            public, local = _without_local(line.specifier)
            asked[line.name] = AskedTorch(name=line.name, specifier=public, local=local, text=line.text, place=place)
    for spec in recipe.conda:
        name = python_name(spec.name) or ""
        if name in FAMILY and name not in asked:
            place = Place(file=recipe.file, line=spec.line)
            specifier = conda_to_specifier(spec.version) or ""
            asked[name] = AskedTorch(name=name, specifier=SpecifierSet(specifier), text=spec.text, place=place)
    return asked


def brings_torch(recipe: Recipe) -> str:
    """Name the first package of the recipe that requires torch by itself, empty when there is none."""
    names = [line.name for line in recipe.pip] + [python_name(spec.name) or "" for spec in recipe.conda]
    return next((name for name in names if name in name_table().bring_torch), "")


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


def choose_torch(asked: AskedTorch | None, *, site: Site, python: str | None, index: str) -> Torch | Finding:
    """Choose release and build for the site: the pinned release, else the newest that serves the site and Python."""
    releases = [row for row in torch_table().releases if asked is None or asked.allows(row.torch)]
    place = asked.place if asked else None
    if not releases:
        newest = torch_table().releases[-1].torch
        message = f"'{asked.text if asked else 'torch'}' fits no torch that the tables know"
        fix = f"choose one from {torch_table().releases[0].torch} to {newest}"
        return Finding(code="torch-unknown", message=message, at=place, fix=fix)
    if asked and asked.local:
        refusal = _local_refusal(asked, site=site, releases=releases)
        if refusal:
            return refusal
    for row in _best_first(releases, site=site):
        token = next(iter(_wanted(tokens(row, site=site), asked=asked)), "")
        if token and (python is None or python in row.pythons):
            return Torch(version=row.torch, token=token, index=_index(token, mirror=index))
    return _no_build(asked, releases=releases, site=site, python=python)


def _best_first(releases: list[TorchRelease], *, site: Site) -> list[TorchRelease]:
    """The newest first, but before it what the site runs without trouble and what the tables are sure of."""

    def doubts(row: TorchRelease) -> tuple[bool, bool]:
        found = tokens(row, site=site)
        return bool(row.unsure), bool(found) and has_trouble(found[0], site=site)

    newest_first = list(reversed(releases))
    return sorted(newest_first, key=doubts)


def has_trouble(token: str, *, site: Site) -> bool:
    """Whether a ROCm build lies above what the site runs without known trouble."""
    safe = site.gpu.rocm_safe if site.gpu else None
    return bool(safe) and token.startswith("rocm") and Version(rocm_of(token)) > Version(safe or "0")


def _wanted(found: tuple[str, ...], *, asked: AskedTorch | None) -> tuple[str, ...]:
    return found if not (asked and asked.local) else tuple(token for token in found if token == asked.local)


def _index(token: str, *, mirror: str) -> str:
    if not mirror:
        return torch_table().index.replace("{token}", token)
    return mirror if mirror == DEFAULT_INDEX else mirror.replace("{token}", token)


def release(version: str) -> TorchRelease | None:
    """The table's row of a torch version, NGC's pre-releases counting as their release."""
    base = Version(version).base_version
    return next((row for row in torch_table().releases if row.torch == base), None)


def vendor_of(token: str) -> str:
    """The vendor a token is built for, empty for a word that is no token."""
    return next((vendor for prefix, vendor in VENDOR_OF_TOKEN.items() if token.startswith(prefix)), "")


def tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    """The builds of a release that serve the site's driver, the best first."""
    if site.gpu is None:
        return ("cpu",) if row.cpu else ()
    if site.gpu.vendor == "intel":
        return ("xpu",) if row.xpu else ()
    if site.gpu.vendor == "amd":
        return _rocm_tokens(row, site=site)
    return _cuda_tokens(row, site=site)


def _rocm_tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    """Inside the driver's window; the highest up to what the site runs without trouble, then the others."""
    assert site.gpu is not None
    fitting = [token for token in row.rocm or () if not site.gpu.rocm or rocm_of(token) in site.gpu.rocm]
    newest_first = sorted(fitting, key=lambda token: Version(token.removeprefix("rocm")), reverse=True)
    return tuple(sorted(newest_first, key=lambda token: has_trouble(token, site=site)))


def rocm_of(token: str) -> str:
    """X.Y of a ROCm token: rocm6.2.4 is 6.2."""
    return ".".join(token.removeprefix("rocm").split(".")[:2])


def cuda_of(token: str) -> str:
    """X.Y of a CUDA token: cu126 is 12.6."""
    digits = token.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"


def cuda_fits(cuda: str, *, site: Site) -> bool:
    """Whether the site's driver runs programs of a CUDA toolkit, minor-version compatibility counting."""
    if site.gpu is None or site.gpu.driver is None:
        return True
    major = int(cuda.split(".")[0])
    row = next((row for row in driver_table().cuda_majors if row.major == major), None)
    return row is not None and Version(row.min_driver) <= Version(site.gpu.driver)


def _cuda_tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    """Native toolkits first (nothing is missing under them), then the highest that the driver runs at all."""
    assert site.gpu is not None
    fitting = [token for token in row.cuda or () if cuda_fits(cuda_of(token), site=site)]
    newest_first = sorted(fitting, key=lambda token: Version(cuda_of(token)), reverse=True)
    if site.gpu.cuda_native is None:
        return tuple(newest_first)
    native = Version(site.gpu.cuda_native)
    return tuple(sorted(newest_first, key=lambda token: Version(cuda_of(token)) > native))


def _local_refusal(asked: AskedTorch, *, site: Site, releases: list[TorchRelease]) -> Finding | None:
    """A build that the user pinned himself must be the site's vendor's and must exist and fit the driver."""
    vendor = vendor_of(asked.local)
    bare = f"{asked.name}=={asked.pinned}" if asked.pinned else asked.name
    fix = f"write {bare}: the right build is chosen for every site"
    if vendor and vendor != site.vendor:
        message = f"'{asked.text}' is built for {_named(vendor)}, the site '{site.name}' has {_named(site.vendor)}"
        return Finding(code="torch-vendor", message=message, at=asked.place, fix=fix)
    if any(asked.local in tokens(row, site=site) for row in releases):
        return None
    window = ", ".join(site.gpu.rocm) if site.gpu and site.gpu.vendor == "amd" else ""
    served = f": its driver serves ROCm {window}" if window else ""
    message = f"'{asked.text}' cannot run on the site '{site.name}'{served}"
    if not any(tokens(row, site=site) for row in releases):
        fix = f"use torch {_range(site)}, without a build"
    return Finding(code="torch-driver", message=message, at=asked.place, fix=fix)


def _named(vendor: str) -> str:
    return {"amd": "AMD GPUs", "nvidia": "NVIDIA GPUs", "intel": "Intel GPUs", "cpu": "CPUs only"}[vendor]


def _no_build(asked: AskedTorch | None, *, releases: list[TorchRelease], site: Site, python: str | None) -> Finding:
    """Say which of the two is in the way, the driver or the Python, and what would do."""
    text = asked.text if asked else "torch"
    place = asked.place if asked else None
    served = [row for row in releases if tokens(row, site=site)]
    if served:
        row = served[-1]
        message = f"'{text}' has no wheel for Python {python}"
        return Finding(code="torch-python", message=message, at=place, fix=f"use Python {', '.join(row.pythons)}")
    row = releases[-1]
    builds = {"amd": row.rocm, "nvidia": row.cuda}.get(site.vendor)
    why = f" (builds: {', '.join(builds)})" if builds else ""
    reason = f"the driver of '{site.name}' serves none of its builds{why}"
    if builds is None:
        reason = f"no build of it for {_named(site.vendor)} is known"
    elif site.gpu and site.gpu.vendor == "amd" and site.gpu.rocm:
        reason += f", it serves ROCm {', '.join(site.gpu.rocm)}"
    message = f"'{text}' cannot run there: {reason}"
    return Finding(code="torch-build", message=message, at=place, fix=f"use torch {_range(site)}")


def _range(site: Site) -> str:
    """The releases that a site can run, in words."""
    usable = [row.torch for row in torch_table().releases if tokens(row, site=site)]
    return f"{usable[0]} to {usable[-1]}" if usable else "of another site: none of the known ones serves this one"

"""The exact packages of an image: uv resolves for the image's Python and glibc, on this machine, wheels only."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from ..sif.errors import LayeringError, log_line
from ..sif.programs import ask, find_signal
from .downloads import DownloadMeter, find_wheel_sizes
from .spec import FIX
from .uv import UNPACKING, make_uv_environment

DIST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?")
DIST_VERSION = re.compile(r"[A-Za-z0-9.!_+-]{1,100}")


def is_distribution(name: str, version: str) -> bool:
    """Whether name and version are valid: an image may claim anything, and both become a file name and a line."""
    return bool(DIST_NAME.fullmatch(name) and DIST_VERSION.fullmatch(version))


def write_stubs(folder: Path, provided: Mapping[str, str]) -> list[str]:
    """Write an empty wheel for each package and return the constraints that name them; invalid ones are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, version in sorted(provided.items()):
        if not is_distribution(name, version):
            continue
        stem = name.replace("-", "_")
        path = folder / f"{stem}-{version}-py3-none-any.whl"
        info = f"{stem}-{version}.dist-info"
        texts = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: recipe\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(path, "w") as archive:
            for inside, text in texts.items():
                archive.writestr(zipfile.ZipInfo(inside), text)
        lines.append(f"{name} @ {path.as_uri()}")
    return lines


# The manylinux platforms that uv names (uv 0.13, `uv pip compile --help`): the newest that the image's glibc serves.
PLATFORMS = (17, 28, *range(31, 41))
# Files of a plan with packages that are built: at a commit, or against the torch of the image.
SOURCES = ("requirements-commits.txt", "compiled.txt")
NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)")
SDIST = re.compile(r'^sdist = .*?sha256 = "([0-9a-f]{64})"', re.MULTILINE)  # in pylock.toml as uv writes it
HASH = re.compile(r"--hash[= ](sha(?:256|384|512):[0-9a-f]{64,128})")
WHEEL_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*:[^\s#;]*/([A-Za-z0-9._]+)-([^/\s#;-]+)-[^/\s#;]+\.whl(?=[\s#;]|$)")
HASHED = "--require-hashes"
VERSION = re.compile(r"==\s*([^\s;\\]+)")
# uv's messages for a package without a wheel for the image.
NO_WHEEL = re.compile(
    r"no (?:usable |compatible )?wheels|source distribution|building .{0,80}disabled|no-build|only-binary"
)
# uv's messages for what it has not downloaded before (uv 0.9 to 0.13).
UNSEEN = re.compile(r"not found in the cache|network (?:was|is) disabled|[Nn]etwork connectivity is disabled")
SOURCE = re.compile(
    r"^(?:-e |--editable|git\+|hg\+|svn\+|\.|/)|@\s*(?:git|hg|svn)\+|\.(?:tar\.gz|zip|tar\.bz2)(?:[\s#]|$)"
)

# Layers of their own: large, and changed less often than the rest. torch's vendor libraries change with torch.
TORCH = re.compile(
    r"torch|torchvision|torchaudio|torchtext|torchdata|torchao|torchcodec|triton|pytorch-triton.*|triton-.*|nvidia-.*|cuda-.*|"
    r"intel-.*|impi-.*|mkl|tbb|tcmlib|umf|dpcpp.*|onemkl.*|oneccl.*|xformers|flash-attn|intel_extension_for_pytorch"
)
HEAVY = re.compile(
    r"tensorflow.*|jax|jaxlib|jax-cuda.*|vllm|deepspeed|bitsandbytes|cupy-.*|cudf-.*|onnxruntime.*|pyspark|ray|paddlepaddle.*|"
    r"mxnet.*|pyside6.*|pyqt.*|vtk|open3d|polars.*|pyarrow"
)


class NeedsSourcesError(LayeringError):
    """A package without a wheel: it has to be built inside the base image."""


class OtherVersionsError(NeedsSourcesError):
    """pip's packages conflict with what the image has: only an installer inside can replace it."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One exact package: `text` is its block in a requirements file, with hashes."""

    name: str
    version: str
    text: str
    hashes: tuple[str, ...]

    @property
    def inputs(self) -> list[object]:
        """What decides its files."""
        return [self.name, self.version, sorted(self.hashes) or self.text]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pins that come from the same indexes and are in one layer."""

    title: str
    pins: tuple[Pin, ...]
    options: tuple[str, ...] = ()  # of uv, naming indexes
    own_index: bool = False  # the user's own indexes are not used


def normalize_name(name: str) -> str:
    """Normalise a distribution's name (PEP 503); `packaging`, which does the same, is not in the standard library."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_platform(machine: str, glibc: str) -> str:
    """Return uv's name of the image's platform; raises LayeringError if no wheels are made for it."""
    parts = glibc.split(".")
    if machine not in ("x86_64", "aarch64") or len(parts) != 2 or parts[0] != "2" or int(parts[1]) < PLATFORMS[0]:
        what = f"glibc {glibc}" if glibc else "no glibc"
        raise LayeringError(f"the base image has {what} for {machine}", fix="build with --backend apptainer")
    return f"{machine}-manylinux_2_{max(number for number in PLATFORMS if number <= int(parts[1]))}"


def name_wheel(line: str) -> str:
    """Return the line of a wheel's address with its name before it: installers take both forms."""
    wheel = WHEEL_ADDRESS.match(line)
    return f"{wheel[1]} @ {line}" if wheel else line


def parse_pins(text: str) -> tuple[Pin, ...]:
    """Parse the pins of a requirements file as uv and pip-compile write them."""
    pins = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.split(" #")[0].strip()
        line = name_wheel(line)
        found = NAME.match(line)
        if found is None or line.startswith(("#", "-")):
            continue
        version = VERSION.search(line)
        address = line.partition(" @ ")[2].split()
        pins.append(
            Pin(
                name=normalize_name(found[1]),
                version=version[1] if version else address[0] if address else "",
                text=line,
                hashes=tuple(HASH.findall(line)),
            )
        )
    return tuple(pins)


def list_given(files: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """Return the digests that requirements files give, by package; uv's resolver passes over them."""
    return collect_hashes(pin for file in files for pin in parse_pins(file.read_text(encoding="utf-8")))


def collect_hashes(pins: Iterable[Pin]) -> dict[str, tuple[str, ...]]:
    """Return the digests by package; it has several pins where each is for another Python."""
    rows = [(pin.name, pin.hashes) for pin in pins if pin.hashes]
    return {name: tuple(one for other, hashes in rows if other == name for one in hashes) for name, _ in rows}


def apply_hashes(pins: Sequence[Pin], *, given: Mapping[str, Sequence[str]]) -> tuple[Pin, ...]:
    """Return pins with the digests that the recipe gives, of which the installer takes the files.

    An index may have no file with them; it gives sha256 alone, and the installer compares the others. Raises
    LayeringError.
    """
    return tuple(_apply_hashes(pin, given[pin.name]) if pin.name in given else pin for pin in pins)


def _apply_hashes(pin: Pin, given: Sequence[str]) -> Pin:
    kept = [value for value in given if value in pin.hashes] or [value for value in given if "sha256:" not in value]
    if not kept:
        message = describe_mismatch(
            pin.name if "/" in pin.version else f"{pin.name} {pin.version}", given=given, found=pin.hashes
        )
        raise LayeringError(message, fix=HASH_FIX.format(pin.name))
    text = " ".join([*HASH.sub("", pin.text).split(), *(f"--hash={value}" for value in kept)])
    return replace(pin, text=text, hashes=tuple(kept))


def check_all_given(names: Iterable[str], *, given: Collection[str]) -> None:
    """Raise LayeringError for packages without a digest where the recipe gives some: pip's rule is all or none."""
    if missing := sorted(set(names) - set(given)):
        message = f"the recipe has hashes, and packages that are required have none: {', '.join(missing)}"
        raise LayeringError(message, fix=ALL_HASHES_FIX)


ALL_HASHES_FIX = "add their lines (`uv pip compile --generate-hashes` lists all of them), or remove all hashes"
HASH_FIX = "compare the digest with the one that '{}' is published with: correct it, or name the index that it is for"


def describe_mismatch(title: str, *, given: Sequence[str], found: Sequence[str]) -> str:
    """Describe a package of which the index has only files with other digests than the recipe gives."""
    return f"no file of '{title}' has the digest of the recipe: {', '.join(given)} given, {', '.join(found)} found"


class Resolver:
    """uv for one image."""

    def __init__(
        self,
        *,
        uv: str,
        minor: str,
        platform: str,
        work: Path,
        environment: Mapping[str, str],
        provided: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.uv, self.work = uv, work
        self.cached_only, self.offline = False, "UV_OFFLINE" in environment
        self.platform = ("--python-version", minor, "--python-platform", platform)
        self.target = (*self.platform, "--only-binary", ":all:")
        self.environment = environment
        self.downloads = DownloadMeter("downloading packages")
        self.stubs = work / "stubs"
        self.provided, self.words = provided, tuple[str, ...]()
        self.said: list[str] = []  # of wheels that were unpacked to read what they require; copies share it
        if provided:
            file = work / "provided.txt"
            file.write_text("".join(f"{line}\n" for line in write_stubs(self.stubs, provided)), encoding="utf-8")
            self.words = ("--constraint", str(file))

    def make_cached_resolver(self, work: Path) -> Resolver:
        """Return an offline, silent copy; its answer may be out of date."""
        work.mkdir()
        other = copy(self)
        other.work, other.cached_only = work, True
        return other

    def make_environment(self, *, own_index: bool = False) -> dict[str, str]:
        """Return uv's environment; with `own_index` the file's index is the only one."""
        return make_uv_environment(self.environment, own_index=own_index)

    def compile(self, files: Sequence[Path], *options: str, own_index: bool = False) -> tuple[Pin, ...]:
        """Resolve requirement files to pins with hashes; raises NeedsSourcesError and LayeringError."""
        for file in files:
            lines = file.read_text(encoding="utf-8").splitlines()
            if any(SOURCE.search(line) for line in lines):
                raise NeedsSourcesError("a package comes as sources")
            if refused := [line for line in lines if line.startswith("--no-binary ") and ":none:" not in line]:
                raise NeedsSourcesError(f"'{refused[-1]}' asks for sources")
        argv = [self.uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        argv += [*self.target, *self.words, *options, *[str(file) for file in files]]
        argv += ["--offline"] if self.cached_only else []
        code, out, answer = ask(argv, env={**self.make_environment(own_index=own_index), **UNPACKING})
        self.said += [line for line in answer.splitlines() if line.startswith("DEBUG ")]
        err = "\n".join(line for line in answer.splitlines() if not line.startswith("DEBUG "))
        if code == 0:
            return self.apply_given(self.parse_pins(out), *options, files=files, own_index=own_index)
        if any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", err) for name in self.provided):
            raise OtherVersionsError("pip's packages ask for other versions than conda's")
        if not self.cached_only:
            print(err.strip()[-4000:], flush=True)
        if killed := find_signal("uv", code):
            raise killed
        if self.offline and UNSEEN.search(err):
            raise LayeringError("what the indexes have was not fetched before, and no server is asked", fix=FIX)
        if NO_WHEEL.search(err):
            raise NeedsSourcesError("a package has no wheel for the image")
        raise LayeringError("the packages cannot be resolved", told=True)

    def apply_given(
        self, pins: Sequence[Pin], *options: str, files: Sequence[Path], own_index: bool = False
    ) -> tuple[Pin, ...]:
        """Return pins with the digests of the requirement files; raises NeedsSourcesError for that of an sdist."""
        given = list_given(files)
        pins = apply_hashes(pins, given=given)
        single = [pin for pin in pins if pin.name in given and len(pin.hashes) == 1 and " @ " not in pin.text]
        if single:
            file = self.work / f"single-{'-'.join(file.stem for file in files)}.txt"
            file.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in single), encoding="utf-8")
            argv = [self.uv, "pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml"]
            argv += [*self.platform, *options, *(["--offline"] if self.cached_only else []), str(file)]
            _, out, _ = ask(argv, env=self.make_environment(own_index=own_index))
            sources = {f"sha256:{digest}" for digest in SDIST.findall(out)}
            if named := [pin.name for pin in single if pin.hashes[0] in sources]:
                raise NeedsSourcesError(f"the recipe has the digest of the sources of {', '.join(named)}")
        return pins

    @contextmanager
    def count_download(self, group: Group, file: Path) -> Iterator[None]:
        """Report how much uv downloads of a group, whose requirements are in `file`, while the block lasts."""

        def find_sizes() -> dict[str, int]:
            argv = [self.uv, "pip", "compile", "--quiet", "--offline", "--no-deps", "--format", "pylock.toml"]
            _, out, _ = ask(
                [*argv, *self.target, *group.options, str(file)], env=self.make_environment(own_index=group.own_index)
            )
            return find_wheel_sizes(out, cache=Path(self.environment["UV_CACHE_DIR"]))

        with self.downloads.count(find_sizes):
            yield

    def parse_pins(self, text: str) -> tuple[Pin, ...]:
        """The pins of a file that uv has written, less what is in the image already."""
        own = self.stubs.as_uri()
        return tuple(pin for pin in parse_pins(text) if own not in pin.text)


def resolve(folder: Path, resolver: Resolver) -> tuple[tuple[Group, ...], bool]:
    """Groups of pins for the files in `image/`; True where the rest has to be installed inside the base image."""
    torch, packages = folder / "requirements-torch.txt", folder / "requirements.txt"
    options = list_uv_options(packages) if packages.exists() else []
    if (folder / "constraints.txt").exists():
        options += ["-c", str(folder / "constraints.txt")]
    own_index = torch.exists() and _has_line(torch, "--index-url ")
    sources = any((folder / name).exists() for name in SOURCES)
    groups: list[Group] = []
    try:
        if torch.exists() and packages.exists() and not own_index and not _has_line(packages, HASHED) and not sources:
            return _group_pins(resolver.compile([torch, packages], *options), ()), False
        if torch.exists():
            groups += _resolve_torch(torch, resolver, own_index=own_index)
        if sources:
            raise NeedsSourcesError("a package comes as sources")
        if packages.exists():
            groups = list(_merge_groups(groups, _resolve_packages(packages, resolver, groups=groups, options=options)))
    except NeedsSourcesError as reason:
        if not resolver.cached_only:
            log_line(f"{reason}: the packages are installed inside the base image")
        if isinstance(reason, OtherVersionsError):
            return (), True
        if torch.exists() and not groups:
            groups = _resolve_torch(torch, resolver, own_index=own_index)
        return tuple(groups), True
    return tuple(groups), False


def _resolve_torch(file: Path, resolver: Resolver, *, own_index: bool) -> list[Group]:
    """Return the torch family with its dependencies; a lock lists every file."""
    text = file.read_text(encoding="utf-8")
    pins = parse_pins(text) if _has_line(file, HASHED) else resolver.compile([file], own_index=own_index)
    return [replace(group, own_index=own_index) for group in _group_pins(pins, tuple(list_uv_options(file)))]


def _resolve_packages(file: Path, resolver: Resolver, *, groups: list[Group], options: list[str]) -> tuple[Group, ...]:
    """Return the recipe's own packages; a torch that was resolved from its own index stays."""
    words = tuple(list_uv_options(file))
    done = [pin for group in groups for pin in group.pins]
    if _has_line(file, HASHED) and (done or file.with_name("lock").exists()):
        # Such a file lists all packages: no other is installed.
        return _group_pins(parse_pins(file.read_text(encoding="utf-8")), words)
    if done:
        family = [pin.name for pin in done if TORCH.fullmatch(pin.name)]
        names = resolver.work / "torch-family.txt"
        names.write_text("".join(f"{name}\n" for name in family), encoding="utf-8")
        before = resolver.work / "preferred.txt"
        before.write_text("".join(f"{pin.text}\n" for pin in done if pin.name not in family), encoding="utf-8")
        options = [*options, "--excludes", str(names), "--output-file", str(before)]
        resolver.compile([file], *options)
        pins = resolver.parse_pins(before.read_text(encoding="utf-8"))
        return _group_pins(resolver.apply_given(pins, *words, files=[file]), words)
    pins = resolver.compile([file], *options)
    if given := list_given([file]):
        check_all_given((pin.name for pin in pins), given=given)
    return _group_pins(pins, words)


def _merge_groups(first: Sequence[Group], second: Sequence[Group]) -> tuple[Group, ...]:
    """Merge two sets of groups; a package in both is the second's."""
    names = {pin.name for group in second for pin in group.pins}
    kept = [replace(group, pins=tuple(pin for pin in group.pins if pin.name not in names)) for group in first]
    return (*[group for group in kept if group.pins], *second)


def _group_pins(pins: Sequence[Pin], options: tuple[str, ...]) -> tuple[Group, ...]:
    """Give heavy packages a layer each, so that a changed pin among the others does not pack them again."""
    rows: dict[str, list[Pin]] = {}
    for pin in sorted(pins, key=lambda pin: pin.name):
        title = "torch" if TORCH.fullmatch(pin.name) else pin.name if HEAVY.fullmatch(pin.name) else "packages"
        rows.setdefault(title, []).append(pin)
    order = sorted(rows, key=lambda title: (title == "packages", title != "torch", title))
    return tuple(Group(title=title, pins=tuple(rows[title]), options=options) for title in order)


def list_uv_options(file: Path) -> list[str]:
    """Return the options in a requirements file as uv's: it ignores some of pip's in the file itself."""
    words = []
    for line in file.read_text(encoding="utf-8").splitlines():
        name, _, value = line.strip().partition(" ")
        if name in ("--index-url", "--extra-index-url", "--find-links", "--no-index"):
            words += [name, value] if value else [name]
        elif name == "--pre":
            words += ["--prerelease", "allow"]
        elif name == "--trusted-host":
            words += ["--allow-insecure-host", value]
    return words


def _has_line(file: Path, start: str) -> bool:
    return any(line.startswith(start) for line in file.read_text(encoding="utf-8").splitlines())

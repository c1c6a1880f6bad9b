"""The recipe's own indexes: which of them stay where the compiler chooses the index of torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

from builder.model.recipe import PipOptions, PipRequirement
from builder.model.site import Vendor
from builder.model.target import Torch
from builder.resolve.tokens import find_vendor

TORCH_HOST = "://download.pytorch.org/whl"
EVERY_BUILD = ("", "torch_stable.html")  # what is below it with files of all builds
VENDORS: tuple[Vendor, ...] = ("nvidia", "amd", "intel")
_PAGE_BUILD = re.compile(r"(?<![a-z0-9])(cu[1-9]\d{1,2}|rocm-?(?:rel-)?\d[\d.]*|xpu|cpu)(?![a-z0-9])")
_PAGE_TORCH = re.compile(r"(?<![a-z])torch-?(\d+\.\d+(?:\.\d+)?)")
LOCAL_VERSION = re.compile(r"===?[^\s,;+@]+\+([A-Za-z0-9.]+)")


def list_builds(lines: Iterable[str]) -> set[str]:
    """List the local versions that requirements pin: rocm6.4 of `xformers==0.0.28+rocm6.4`."""
    return {match[1] for line in lines if (match := LOCAL_VERSION.search(line))}


def is_kept_index(url: str, *, torch: Torch | None, builds: Collection[str]) -> bool:
    """Whether the recipe's index stays: one of PyTorch's only for a requirement that pins a build of it.

    No default index has a file with a local version.
    """
    if torch is None or TORCH_HOST not in url:
        return True
    folders = url.partition(TORCH_HOST)[2].partition("#")[0].split("/")
    return any(build in folders for build in builds) or ("".join(folders) in EVERY_BUILD and any(map(is_build, builds)))


def is_build(local: str) -> bool:
    """Whether a local version is one of PyTorch's builds."""
    return local == "cpu" or bool(find_vendor(local))


@dataclass(frozen=True, kw_only=True)
class WheelPage:
    """An address of wheels that names what they were compiled for; `torch` is "" where it names none."""

    url: str
    build: str
    torch: str

    @property
    def vendor(self) -> Vendor:
        """The vendor whose devices the wheels are for."""
        found = find_vendor(self.build)
        return next((vendor for vendor in VENDORS if vendor == found), "cpu")

    def serves(self, torch: Torch) -> bool:
        """Whether the wheels are for a torch: its first two numbers, and a build of the same CUDA or ROCm major."""
        release = self.torch.split(".")[:2]
        same = self.vendor == (find_vendor(torch.token) or "cpu") and self.build[:4] == torch.token[:4]
        return same and (not release or release == torch.version.split(".")[:2])

    def adapt(self, torch: Torch) -> str:
        """The same address for another torch."""
        text = unquote(self.url).replace(self.build, torch.token)
        release = ".".join(torch.version.split(".")[: self.torch.count(".") + 1])
        return re.sub(rf"(torch-?){re.escape(self.torch)}", rf"\g<1>{release}", text) if self.torch else text

    def has(self, line: PipRequirement) -> bool:
        """Whether the address itself names a package, as those of mmcv, kaolin and dgl do."""
        name = re.escape(line.name.removesuffix("-python")).replace("\\-", "[-_]")
        return bool(line.name) and re.search(rf"(?<![a-z0-9]){name}(?![a-z0-9])", self.url) is not None


@cache
def read_page(url: str) -> WheelPage | None:
    """Read an address of wheels; None where it is PyTorch's own, or names no build."""
    text = unquote(url).partition("://")[2]
    build = None if TORCH_HOST in url else _PAGE_BUILD.search(text)
    torch = _PAGE_TORCH.search(text)
    return WheelPage(url=url, build=build[1], torch=torch[1] if torch else "") if build else None


def list_pages(options: PipOptions) -> list[WheelPage]:
    """List the addresses of a recipe that name what their wheels were compiled for."""
    urls = filter(None, (options.index_url, *options.extra_index_urls, *options.find_links))
    return [page for page in map(read_page, urls) if page is not None]


def list_options(options: PipOptions, *, torch: Torch | None, lines: Sequence[str]) -> tuple[str, ...]:
    """List the options of a requirements file for the lines that stay, with the indexes that these need."""
    builds, first = list_builds(lines), options.index_url
    urls = [
        f"--extra-index-url {url}" for url in options.extra_index_urls if is_kept_index(url, torch=torch, builds=builds)
    ]
    if first and torch is not None and TORCH_HOST in first:
        # as the only index it would hide the default one, where everything else is
        urls += [f"--extra-index-url {first}"] if is_kept_index(first, torch=torch, builds=builds) else []
        first = ""
    found = [f"--find-links {url}" for url in options.find_links if is_kept_index(url, torch=torch, builds=builds)]
    if torch is not None and "://" in torch.index and torch.token in builds and not (first or urls or found):
        urls += [] if options.no_index else [f"--extra-index-url {torch.index}"]
    written: list[str] = [f"--index-url {first}"] if first else []
    written += [*urls, *found]
    written += ["--no-index"] if options.no_index else []
    written += ["--pre"] if options.pre else []
    written += [f"--no-binary {name}" for name in options.no_binary]
    written += [f"--only-binary {name}" for name in options.only_binary]
    written += ["--require-hashes"] if options.require_hashes else []
    written += [f"--trusted-host {host}" for host in options.trusted_hosts]
    return tuple(written)

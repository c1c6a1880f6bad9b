"""The recipe's own indexes: which of them stay where the compiler chooses the index of torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from builder.model.recipe import PipOptions
from builder.model.target import Torch
from builder.resolve.torch import find_vendor

TORCH_HOST = "://download.pytorch.org/whl"
EVERY_BUILD = ("", "torch_stable.html")  # what is below it with files of all builds
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

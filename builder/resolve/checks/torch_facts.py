"""Uncertain facts about the chosen torch, and the nearest release without a doubt."""

from __future__ import annotations

from collections.abc import Iterator

from builder.model.finding import Finding
from builder.model.site import Site
from builder.model.target import Target
from builder.parse.gpu_tables import TorchRelease, load_torch_table
from builder.resolve.tokens import has_trouble, list_tokens
from builder.resolve.torch import find_release


def check_torch_facts(target: Target) -> Iterator[Finding]:
    """Report uncertain facts about the chosen torch; doubts about other vendors' builds are ignored."""
    torch = target.environment.torch
    if torch is not None and torch.provided and target.base.unsure:
        message = f"the facts about '{target.base.reference}' are not certain: {', '.join(target.base.unsure)}"
        fix = "the build checks the torch of the image; choose another base image to be certain before"
        yield Finding(code="table-unsure", message=message, fix=fix, level="warning")
    row = find_release(torch.version) if torch is not None and not torch.provided and torch.version else None
    if torch is None or row is None:
        return
    doubts = _list_torch_doubts(row, site=target.site, token=torch.token)
    if doubts:
        message = f"the facts about torch {row.torch} are not certain: {', '.join(doubts)}"
        fix = "no action needed: the build checks the torch of the image"
        if sure := _find_sure_torch(row, target=target):
            fix = f"the build checks the torch of the image; torch {sure} has a build that is certain"
        yield Finding(code="table-unsure", message=message, fix=fix, level="warning")


def _list_torch_doubts(row: TorchRelease, *, site: Site, token: str) -> list[str]:
    """List what is uncertain about a release's build; doubts about other vendors' builds are left out."""
    kind = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "cpu": "cpu"}[site.vendor]
    return [text for text in row.unsure if text.split()[0] in (kind, token)]


def _find_sure_torch(row: TorchRelease, *, target: Target) -> str:
    """Find the nearest release, of equal ones the older, whose build for this site is certain; "" if there is none."""
    site, releases = target.site, load_torch_table().releases
    sure = []
    for number, other in enumerate(releases):
        tokens = list_tokens(other, site=site)
        fits = tokens and target.environment.python in ("", None, *other.pythons)
        if fits and not has_trouble(tokens[0], site=site) and not _list_torch_doubts(other, site=site, token=tokens[0]):
            sure.append((abs(number - releases.index(row)), number, other.torch))
    return min(sure)[2] if sure else ""

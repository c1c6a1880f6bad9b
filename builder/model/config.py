"""Settings of a user or of a system: what a command takes where its line and the environment say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Owner = Literal["user", "system"]


@dataclass(frozen=True, kw_only=True)
class Indexes:
    """Mirrors of package indexes."""

    pypi: str = ""  # pip's packages: https://HOST/simple, or the full path of a folder
    torch: str = ""  # the wheels of PyTorch: https://HOST/{token}, where {token} is the build; or `default`


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings: what a command takes where its line and the environment say nothing."""

    site: str = ""  # the site of a line that names none
    account: Mapping[str, str] = field(default_factory=dict)  # name of a site: Slurm account
    indexes: Indexes = Indexes()
    cache: str = ""  # folder of layers and downloads: an absolute path, or one from ~/; with ${NAME}, as in ${USER}
    color: Literal["auto", "never"] = "auto"  # auto: on a terminal


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A file of settings: its values by the path of their keys (`account.lumi-g`), with their lines."""

    path: str
    owner: Owner
    values: Mapping[str, str]
    lines: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value and where it comes from: a file with its line, or the words of `origin`."""

    name: str
    value: str
    origin: str
    file: str = ""
    line: int | None = None

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return f"{self.file}:{self.line}" if self.file else self.origin

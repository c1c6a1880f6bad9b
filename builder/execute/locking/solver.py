"""py-rattler in a process of its own: `python -m builder.execute.locking.solver REQUEST ANSWER`.

Its Rust threads can abort the interpreter at its end (seen on 0.28.0 after a refused connection), and a fault in
them is a panic that no except clause should have to catch. REQUEST and ANSWER are JSON files without secrets.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from builder.model.safe import USER

if TYPE_CHECKING:
    from rattler import Client

ALIAS = "https://conda.anaconda.org/"


async def _solve(request: Mapping[str, Any]) -> None:
    from rattler import (
        BuildString,
        Channel,
        ChannelConfig,
        Gateway,
        GenericVirtualPackage,
        LockChannel,
        LockFile,
        LockPlatform,
        MatchSpec,
        PackageName,
        SourceConfig,
        Version,
        solve,
    )

    alias = os.environ.get("CONDA_CHANNEL_ALIAS") or ALIAS
    names = ChannelConfig(USER.sub("//", alias), request["folder"])
    channels = [Channel(name, names) for name in request["channels"]]
    virtual = [
        GenericVirtualPackage(PackageName(name), Version(version), BuildString(build))
        for name, version, build in (item.split("=") for item in request["virtual"])
    ]
    config = SourceConfig(cache_action="force-cache-only" if request["offline"] else "cache-or-fetch")
    gateway = Gateway(cache_dir=Path(request["cache"]), default_config=config, client=_client(alias))
    records = await solve(
        sources=channels,
        specs=[MatchSpec(spec, strict=False) for spec in request["specs"]],
        gateway=gateway,
        platforms=[request["platform"], "noarch"],
        virtual_packages=virtual,
    )
    platform = LockPlatform(request["platform"], virtual_packages=list(request["virtual"]))
    lock = LockFile([platform])
    lock.set_channels("default", [LockChannel(channel.base_url) for channel in channels])
    for record in sorted(records, key=lambda record: record.name.normalized):
        lock.add_conda_package("default", platform, record)
    lock.to_path(Path(request["output"]))


def _client(alias: str) -> Client:
    """The usual client; a user and password in the alias become a header, since addresses are kept in the cache."""
    from rattler import Client
    from rattler.networking import (
        AddHeadersMiddleware,
        AuthenticationMiddleware,
        GCSMiddleware,
        OciMiddleware,
        RetryMiddleware,
        S3Middleware,
    )

    parts = urlsplit(alias)
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}

    def of_alias(host: str, path: str) -> dict[str, str] | None:
        del path
        return headers if parts.username and host == parts.hostname else None

    first = (RetryMiddleware(3), AddHeadersMiddleware(of_alias))
    return Client([*first, AuthenticationMiddleware(), OciMiddleware(), GCSMiddleware(), S3Middleware()])


def main(request: str, answer: str) -> None:
    """Solve, and say how it went."""
    try:
        asyncio.run(_solve(json.loads(Path(request).read_text(encoding="utf-8"))))
        result = {"error": "", "text": ""}
    except Exception as error:  # every kind of it is told by its name
        result = {"error": type(error).__name__, "text": str(error)}
    Path(answer).write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

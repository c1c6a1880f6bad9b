"""py-rattler in a process of its own: `python conda_worker.py REQUEST ANSWER`, for locks and for layers.

Its Rust threads can abort the interpreter when it exits (seen on 0.28.0 after a refused connection), and an error in
them is a panic that no except clause should have to catch. REQUEST and ANSWER are JSON files without secrets.

REQUEST has what to `do`: `solve` finds exact packages and can write them as a pixi.lock (`output`); `stage` downloads
packages and links them for a prefix that is only in the image.
"""

from __future__ import annotations

import asyncio
import base64
import glob
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from rattler import Client, RepoDataRecord

ALIAS = "https://conda.anaconda.org/"
USER, TOKEN = re.compile(r"//[^/@\s]+@"), re.compile(r"/t/[^/]+/")


async def _solve(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    from rattler import (
        BuildString,
        Channel,
        ChannelConfig,
        Gateway,
        GenericVirtualPackage,
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
    gateway = Gateway(cache_dir=Path(request["cache"]), default_config=config, client=_make_client(alias))
    records = await solve(
        sources=channels,
        specs=[MatchSpec(spec, strict=False) for spec in request["specs"]],
        gateway=gateway,
        platforms=[request["platform"], "noarch"],
        virtual_packages=virtual,
    )
    records.sort(key=lambda record: record.name.normalized)
    if request["output"]:
        _write(records, request, channels=[channel.base_url for channel in channels])
    return [_to_row(record) for record in records]


def _write(records: list[RepoDataRecord], request: Mapping[str, Any], *, channels: list[str]) -> None:
    from rattler import LockChannel, LockFile, LockPlatform

    platform = LockPlatform(request["platform"], virtual_packages=list(request["virtual"]))
    lock = LockFile([platform])
    lock.set_channels("default", [LockChannel(channel) for channel in channels])
    for record in records:
        lock.add_conda_package("default", platform, record)
    lock.to_path(Path(request["output"]))


def _to_row(record: RepoDataRecord) -> dict[str, Any]:
    """Return what decides the files of a package, as in a lock."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": record.subdir,
        "url": record.url,
        "sha256": record.sha256.hex() if record.sha256 else "",
        "md5": record.md5.hex() if record.md5 else "",
        "size": record.size or 0,
        "depends": list(record.depends),
    }


async def _stage(request: Mapping[str, Any]) -> None:
    """Link packages below `folder` for `prefix`.

    py-rattler compares what it downloads with its sha256, but not the files of a local channel: the caller has to. It
    compares every file of packages that were unpacked before, and unpacks a damaged one again.
    """
    from rattler import Subdir, install
    from rattler.package_cache import PackageCache, ValidationMode

    result = Path(request["answer"])

    def refused(message: str) -> None:
        """Exit before a file of the package is linked: the library continues after an exception."""
        result.write_text(json.dumps({"error": "PathsError", "text": message}), encoding="utf-8")
        os._exit(0)

    cache = PackageCache.new_layered([Path(request["cache"])], validation_mode=ValidationMode.full())
    await install(
        [_to_record(row) for row in request["records"]],
        target_prefix=request["folder"],
        alternative_target_prefix=request["prefix"],
        package_cache=cache,
        installed_packages=[],
        platform=Subdir(request["platform"]),
        execute_link_scripts=False,
        show_progress=False,
        client=_make_client(os.environ.get("CONDA_CHANNEL_ALIAS") or ALIAS, offline=request["offline"]),
        reporter=_check_before_linking(Path(request["cache"]), request["records"], refused),
    )


def _check_before_linking(cache: Path, rows: list[Mapping[str, Any]], refused: Callable[[str], None]) -> Any:
    """Return a reporter that checks every unpacked package before it is linked."""
    from rattler.install import InstallerReporter

    stems = {row["name"]: f"{row['name']}-{row['version']}-{row['build']}" for row in rows}

    class Look(InstallerReporter):  # a protocol: methods that are missing here do nothing
        def on_link_start(self, operation: int, package_name: str) -> int:
            try:
                folders = [path for path in cache.glob(f"{glob.escape(stems[package_name])}*") if path.is_dir()]
                fault = next((fault for path in folders if (fault := find_fault(path))), "")
            except Exception as error:  # a package that cannot be checked is not linked
                fault = f"its list of files cannot be read: {error}"
            if fault:
                refused(f"the package '{package_name}' is not linked: {fault}")
            return operation

    look: Any = Look
    return look()


def find_fault(package: Path) -> str:
    """Return what in an unpacked package would write or point outside the environment, "" if nothing does."""
    paths = json.loads((package / "info" / "paths.json").read_text(encoding="utf-8"))["paths"]
    for row in paths:
        name = str(row["_path"])
        if name.startswith("/") or ".." in name.split("/") or not name.isprintable() or "\\" in name:
            return f"it names the file {name[:100]!a}"
        path = package / name
        if path.is_symlink():
            target = os.readlink(path)
            place = os.path.normpath(os.path.join(os.path.dirname(name), target))
            if target.startswith("/") or place == ".." or place.startswith("../"):
                return f"its link {name[:100]!a} leads out of the environment, to {target[:100]!a}"
    return ""


def _to_record(row: Mapping[str, Any]) -> RepoDataRecord:
    """Return a package for py-rattler; it reads what is missing here from the package itself."""
    from rattler import BuildString, PackageRecord, RepoDataRecord

    channel, _, name = row["url"].rsplit("/", 2)
    record = PackageRecord(
        row["name"],
        row["version"],
        BuildString(row["build"]),
        0,
        row["subdir"],
        depends=list(row["depends"]),
        sha256=bytes.fromhex(row["sha256"]),
        size=row["size"] or None,
    )
    return RepoDataRecord(record, name, row["url"], f"{channel}/")


def _make_client(alias: str, *, offline: bool = False) -> Client:
    """Return the usual client; a login in the alias becomes a header, since addresses are stored in the cache.

    With `offline` it sends no request.
    """
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
        if offline:
            raise ConnectionError("no server is asked")
        return headers if parts.username and host == parts.hostname else None

    first = (RetryMiddleware(3), AddHeadersMiddleware(of_alias))
    return Client([*first, AuthenticationMiddleware(), OciMiddleware(), GCSMiddleware(), S3Middleware()])


def main(request: str, answer: str) -> None:
    asked = json.loads(Path(request).read_text(encoding="utf-8"))
    result: dict[str, Any] = {"error": "", "text": ""}
    try:
        if asked["do"] == "solve":
            result["records"] = asyncio.run(_solve(asked))
        else:
            asyncio.run(_stage({**asked, "answer": answer}))
    except Exception as error:  # the answer has its name
        result = {"error": type(error).__name__, "text": TOKEN.sub("/", USER.sub("//", str(error)))}
    Path(answer).write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

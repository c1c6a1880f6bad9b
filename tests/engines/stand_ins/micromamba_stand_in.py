"""A stand-in for micromamba inside a build: `create ... -p PREFIX -f FILE` of an explicit list, done by py-rattler.

It is as fast as it can be: packages are linked as py-rattler does it, pure Python is compiled on all cores.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("site")))

from rattler import BuildString, PackageRecord, RepoDataRecord, install


def packages(file: Path) -> list[RepoDataRecord]:
    """The files of an @EXPLICIT list; raises SystemExit for one that is not what the list says."""
    found = []
    for line in file.read_text().splitlines():
        if not line.startswith("file://"):
            continue
        url, _, digest = line.partition("#sha256:")
        if hashlib.sha256(Path(url.removeprefix("file://")).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{url}: another sha256")
        channel, subdir, name = url.rsplit("/", 2)
        title, version, build = name.removesuffix(".conda").rsplit("-", 2)
        record = PackageRecord(title, version, BuildString(build), 0, subdir, sha256=bytes.fromhex(digest))
        found.append(RepoDataRecord(record, name, url, f"{channel}/"))
    return found


def main() -> None:
    words = sys.argv[1:]
    prefix, file = Path(words[words.index("-p") + 1]), Path(words[words.index("-f") + 1])
    root = Path(words[words.index("--root-prefix") + 1])
    records = packages(file)
    work = install(records, target_prefix=prefix, cache_dir=root / "pkgs", installed_packages=[], show_progress=False)
    asyncio.run(work)
    subprocess.run([prefix / "bin" / "python", "-m", "compileall", "-q", "-j", "0", prefix / "lib"], check=True)


if __name__ == "__main__":
    main()

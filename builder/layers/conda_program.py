"""py-rattler, which solves and links conda packages: the Python's own, else the one that uv fetches.

It is five times as large as recipe itself (81 MB), and only conda environments need it: the extra `conda` installs it,
and without that uv fetches it into recipe's cache when it is first needed. https://conda.github.io/rattler/py-rattler/
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ..sif.errors import LayeringError, log_line
from ..sif.programs import ask
from .uv import FIX as UV_FIX
from .uv import find_uv, make_uv_environment

RELEASE = "0.28"  # which this was tried with
# Of its wheels as the package index has them: x86_64 and aarch64.
HASHES = (
    "4f4ab1d34d5394e7ce130a86e59009c95ace4f5757d9c3af04de1351bcea47eb",
    "61b24202374188e72130f1b3dc63b455befaafc3e49e5481a38b6a6c8828c1e0",
)
PINNED = f"py-rattler=={RELEASE}.0 " + " ".join(f"--hash=sha256:{digest}" for digest in HASHES) + "\n"
PACKAGE = f"'py-rattler=={RELEASE}.*'"
FIX = (
    f"get its wheel where the package index can be reached (`python3 -m pip download --no-deps {PACKAGE} -d wheels`) "
    "and install it here: `{uv} pip install --python {python} --no-index --find-links wheels " + PACKAGE + "`"
)


def find_rattler(
    *, work: Path, environment: Mapping[str, str], offline: bool, log: Callable[[str], None] = log_line
) -> Path | None:
    """Return the folder to import py-rattler from, None where this Python has it; raises LayeringError with the fix.

    `environment` are uv's variables, `log` takes lines for people. What uv fetched before is used without a request.
    """
    code, out, _ = ask([sys.executable, "-c", "import rattler; print(rattler.__version__)"])
    if code == 0:
        if not out.strip().startswith(f"{RELEASE}."):
            log(f"py-rattler is {out.strip()}, this was tried with {RELEASE}")
        return None
    return fetch_rattler(work=work, environment=environment, offline=offline, log=log)


def fetch_rattler(*, work: Path, environment: Mapping[str, str], offline: bool, log: Callable[[str], None]) -> Path:
    """Have uv fetch py-rattler into its cache and install it in a folder; raises LayeringError with the fix."""
    if (uv := find_uv()) is None:
        message = (
            f"conda packages need py-rattler, which {sys.executable} has not, and uv, which fetches it, is missing"
        )
        raise LayeringError(message, fix=UV_FIX)
    # Not `uv run --with`: that takes no hashes.
    folder, pins = work / "py-rattler", work / "py-rattler.txt"
    pins.write_text(PINNED, encoding="utf-8")
    argv = [uv, "pip", "install", "--quiet", "--no-config", "--no-deps", "--require-hashes"]
    argv += ["--only-binary", ":all:", "--python", sys.executable, "--target", str(folder), "-r", str(pins)]
    settings = make_uv_environment(environment)
    code, _, err = ask([*argv, "--offline"], env=settings)
    if code == 0:
        return folder
    fix = FIX.format(uv=uv, python=sys.executable)
    if offline or "UV_OFFLINE" in settings:
        message = "conda packages need py-rattler, which was not fetched before, and no server is asked"
        raise LayeringError(message, fix=f"run the same once where the package index can be reached, or {fix}")
    log("conda packages need py-rattler: uv fetches it once (30 MB)")
    code, _, err = ask(argv, env=settings)
    if code == 0:
        return folder
    reason = " ".join(err.split())[-500:]
    raise LayeringError(f"conda packages need py-rattler, which uv could not fetch: {reason}", fix=fix)

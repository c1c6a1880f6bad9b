"""recipe bundle: all that an image is made of, and what makes it, in one file for a machine without a network."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from builder.compile.render import read_template
from builder.execute.build_options import ExecutionOptions, Signals
from builder.execute.fetch import VARIABLE as FETCH
from builder.execute.fetch import check_fetchable, fetch
from builder.execute.plan_folder import write_plan
from builder.execute.progress import Progress
from builder.layers.conda_program import fetch_rattler
from builder.layers.copies import copy_bytes
from builder.layers.spec import VARIABLE as OFFLINE
from builder.layers.uv import SETTINGS, VARIABLE, make_uv_settings, require_uv
from builder.model.finding import ConfigError, Finding, Location, StepError, ToolError
from builder.model.plan import Plan, PlanFile
from builder.model.secrets import Mask, strip_all_credentials
from builder.sif.errors import LayeringError
from builder.sif.tree import FOLDER, walk
from builder.system.files import make_temporary_path, name_draft, remove_tree
from builder.system.process import find_program, run

SUFFIXES = {".tar.zst": "zstd", ".tar.gz": "gzip", ".tar": ""}  # of a bundle, with the program that compresses it
BASE = "base.sif"
SPEC = "layers.json"
INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
SHOWN = 12  # lines of a program's output in a finding
TIMEOUT = 7200.0  # seconds for packing, and for the trial
# Nothing of the user who packs it: no name, no number, no time.
TAR = ("--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--mode=u+rwX,go+rX,go-w")


@dataclass(frozen=True, kw_only=True)
class BundlePart:
    """Something that a bundle holds; `size` in bytes, None where it is known after the download."""

    name: str
    what: str
    size: int | None


def find_suffix(output: Path) -> str:
    """Return the ending of a bundle's name; raises ConfigError for another one."""
    suffix = next((one for one in SUFFIXES if output.name.endswith(one) and output.name != one), None)
    if suffix is None:
        message = f"'{output}' is no name of a bundle: it ends in {', '.join(SUFFIXES)}"
        name = f"{output.stem or 'x'}.tar.zst"
        fix = f"write -o {shlex.quote(name)}"
        raise ConfigError(Finding(code="option-value", message=message, at=Location(key="-o"), fix=fix))
    return suffix


def list_parts(plan: Plan, *, packages: int | None) -> tuple[BundlePart, ...]:
    """What the bundle of a plan will hold; `packages` are the bytes of a lock's files, None without a lock."""
    base = Path(plan.base)
    size = base.stat().st_size if base.is_absolute() and base.is_file() else None
    uv = Path(require_uv()).resolve().stat().st_size
    return (
        BundlePart(name="plan", what=f"the scripts that make {plan.image}, and its recipe", size=_measure_texts(plan)),
        BundlePart(name="base", what=f"the base image {plan.base}", size=size),
        BundlePart(name="packages", what="the packages, with their hashes", size=packages),
        BundlePart(name="uv", what="uv, which installs them", size=uv),
    )


def check_bundle(plan: Plan, *, backends: Collection[str], output: Path) -> None:
    """Raise ConfigError for a backend that cannot or a folder that is missing, ToolError for a missing program."""
    check_fetchable(plan, backends=backends)
    if not output.resolve().parent.is_dir():
        message, at = f"the folder of '{output}' is missing", Location(file=str(output))
        fix = f"make it: `mkdir -p {shlex.quote(str(output.parent))}`"
        raise ConfigError(Finding(code="output-folder", message=message, at=at, fix=fix))
    program = SUFFIXES[find_suffix(output)]
    for name in ("tar", *([program] if program else [])):
        if find_program(name, env=os.environ) is None:
            fix = "install it, or write -o with a name that ends in .tar" if name == program else "install it"
            message = f"a bundle needs {name}, which is not on PATH"
            raise ToolError(Finding(code="no-program", message=message, fix=fix))


def write_bundle(
    plan: Plan,
    output: Path,
    *,
    backends: Collection[str],
    recipe_folder: Path,
    options: ExecutionOptions,
    progress: Progress,
    tell: Callable[[str], None],
) -> int:
    """Fetch, try the result without a network, and pack it; return the bytes of the file.

    What is downloaded goes into the bundle alone: it holds nothing of the user's cache. Raises what `fetch` raises, and
    StepError where the bundle is not enough by itself.
    """
    output = output.resolve()
    name = output.name.removesuffix(find_suffix(output))
    with make_temporary_path(name_draft(output)) as draft:
        tree = draft / name
        tree.mkdir(parents=True, mode=0o700)
        settings = choose_settings(options.environment)
        own = {**dict.fromkeys(_list_names(), ""), **settings, "RECIPE_CACHE_DIR": str(tree / "cache")}
        fetch(plan, backends=backends, recipe_folder=recipe_folder, options=options, progress=progress, settings=own)
        with _catch_signals():
            _fill(tree, plan, recipe_folder=recipe_folder, settings=settings)
            if _has_conda(plan):
                _add_rattler(draft, tree, environment={**options.environment, **own})
            tell("trying it without a network")
            _try(tree, log=draft / "trial.log", environment={**options.environment, **own})
            remove_tree(tree / "cache" / "fetch")
            sizes = {part.name: _measure(part) / 2**20 for part in sorted(tree.iterdir())}
            held = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items() if size >= 1)
            tell(f"packing {sum(sizes.values()):.0f} MB: {held}")
            archive = draft / output.name
            _pack(tree, archive, log=draft / "tar.log")
            archive.replace(output)
    return output.stat().st_size


def choose_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of uv that a bundle has: those of the user, without logins and folders of this machine."""
    found = {}
    for name, others in SETTINGS.items():
        value = next((text for key in (name, *others) if (text := environment.get(key))), "")
        if name in INDEXES:
            value = " ".join(word for word in value.replace(",", " ").split() if "://" in word and word[:5] != "file:")
        if value:
            found[name] = value
    return found


def _list_names() -> Iterator[str]:
    """The variables that the settings of a bundle replace."""
    for name, others in SETTINGS.items():
        yield from (name, *others)
    yield "UV_CACHE_DIR"


def _fill(tree: Path, plan: Plan, *, recipe_folder: Path, settings: Mapping[str, str]) -> None:
    """Write the plan, the base image, uv and the script next to the cache."""
    base = Path(plan.base)
    if base.is_absolute():
        _copy(base, tree / BASE)
        plan = replace(plan, files=tuple(_move_base(file) for file in plan.files))
    write_plan(plan, tree / "plan", recipe_folder=recipe_folder)
    (tree / "plan" / ".lock").unlink(missing_ok=True)
    (tree / "bin").mkdir()
    _copy(Path(require_uv()), tree / "bin" / "uv", mode=0o755)
    lines = [f"unset {' '.join(_list_names())}"]
    lines += [f"export {name}={shlex.quote(strip_all_credentials(value))}" for name, value in settings.items()]
    (tree / "settings.sh").write_text("# shellcheck shell=bash\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (tree / "build.sh").write_text(read_template("bundle.sh"), encoding="utf-8")
    (tree / "build.sh").chmod(0o755)
    (tree / "README.md").write_text(read_template("bundle.md"), encoding="utf-8")


def _move_base(file: PlanFile) -> PlanFile:
    """The description of the layers with the base image of the bundle."""
    if file.path != SPEC:
        return file
    content = {**json.loads(file.text), "base": f"../{BASE}"}
    return replace(file, text=json.dumps(content, indent=2, sort_keys=True) + "\n")


def _has_conda(plan: Plan) -> bool:
    text = next((file.text for file in plan.files if file.path == SPEC), "{}")
    return bool(json.loads(text).get("place") == "conda")


def _add_rattler(work: Path, tree: Path, *, environment: Mapping[str, str]) -> None:
    """Have py-rattler in the bundle's cache, also where this Python has it."""
    try:
        settings = make_uv_settings(environment, cache=tree / "cache")
        fetch_rattler(work=work, environment=settings, offline=False, log=lambda _line: None)
    except LayeringError as error:
        raise ToolError(Finding(code="no-network", message=Mask(environment)(str(error)), fix=error.fix)) from None


def _try(tree: Path, *, log: Path, environment: Mapping[str, str]) -> None:
    """Have the bundle's own script look whether all is there; raises StepError."""
    kept = {name: value for name, value in environment.items() if value and not name.startswith("PYTHON")}
    kept |= {OFFLINE: "yes", FETCH: "yes", VARIABLE: str(tree / "bin" / "uv"), "PYTHONDONTWRITEBYTECODE": "1"}
    script = next(iter(sorted((tree / "plan").glob("1-*.sh"))))
    _call(
        ["bash", str(script)],
        cwd=tree / "plan",
        env=kept,
        log=log,
        code="not-fetched",
        what="the bundle is not complete",
    )
    for rest in ("logs", ".lock"):
        path = tree / "plan" / rest
        if path.is_file():
            path.unlink()


def _pack(tree: Path, archive: Path, *, log: Path) -> None:
    words = ["tar", "--create", "--auto-compress", "--file", str(archive), *TAR, "--directory", str(tree.parent)]
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "ZSTD_NBTHREADS": "0"}
    _call(
        [*words, "--", tree.name],
        cwd=tree.parent,
        env=env,
        log=log,
        code="step-failed",
        what="the bundle could not be packed",
    )


def _call(words: list[str], *, cwd: Path, env: Mapping[str, str], log: Path, code: str, what: str) -> None:
    done = run(words, cwd=cwd, env=env, log=log, on_line=lambda _line: None, mask=Mask(env), timeout=TIMEOUT)
    if done.exit_code:
        said = " ".join(line.strip() for line in done.tail[-SHOWN:])
        fix = "see what it says; `recipe build` makes the image where there is a network"
        raise StepError(Finding(code=code, message=f"{what}: {said}", fix=fix))


@contextmanager
def _catch_signals() -> Iterator[None]:
    with Signals().catch():
        yield


def _measure_texts(plan: Plan) -> int:
    return sum(len(file.text.encode()) for file in plan.files)


def _measure(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in walk(path) if entry.kind != FOLDER)


def _copy(source: Path, target: Path, *, mode: int = 0o644) -> None:
    with source.open("rb") as read, target.open("xb") as written:
        copy_bytes(read.fileno(), written.fileno())
        os.fchmod(written.fileno(), mode)

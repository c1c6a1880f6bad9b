"""The files that are put into an image: the folder `image/` of a plan. All texts of a recipe are data files here."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from builder.compile import shell
from builder.compile.render import read_template
from builder.layers.reference import find_registry
from builder.model.finding import Location
from builder.model.plan import Copy, PlanFile
from builder.model.target import PREFIX, Target
from builder.model.text import CONTROL, is_misleading, make_config_error, sanitize
from builder.parse.yaml import to_yaml

if TYPE_CHECKING:  # loaded where there is a lock
    from builder.layers.conda_solver import CondaPackage

# Of NVIDIA's PyTorch images and of its images of CUDA.
COMPAT = "/usr/local/cuda/compat/lib:/usr/local/cuda/compat"
IMAGE_FOLDER = "image"
BUILD = "/opt/recipe/build"  # where a build has that folder
REQUIRE_HASHES = "--require-hashes"


def pin_base_reference(target: Target) -> str:
    """Return the base image's reference for an engine, with its digest if the lock has one."""
    reference, lock = target.base.reference, target.lock
    if lock is None or not lock.base.digest or lock.base.size or "@" in reference:
        return reference
    scheme, separator, name = reference.partition("://")
    # Apptainer accepts a tag or a digest, not both (containers/image).
    host, slash, last = name.rpartition("/")
    return f"{scheme}{separator}{host}{slash}{last.partition(':')[0]}@{lock.base.digest}"


def find_base_registry(target: Target) -> tuple[str, bool]:
    """Return the host of the base image's registry, and whether site or user (not only the recipe) name it."""
    host = find_registry(target.base.reference)
    chosen = target.recipe.container.base and not target.context.base
    return host, not chosen or host in {find_registry(image.reference) for image in target.site.base_images}


def find_base_digest(target: Target) -> str:
    """Return the digest of the base image, sha256:<64 hex>, from the lock or the reference; "" if unknown."""
    own = target.lock.base.digest if target.lock is not None else ""
    _, separator, named = target.base.reference.partition("@sha256:")
    return own or (f"sha256:{named}" if separator else "")


def make_base_check(target: Target) -> list[str]:
    """Make the line that stops a build if a local file is not the locked base image."""
    lock = target.lock
    if lock is None or not lock.base.size:
        return []
    digest = lock.base.digest.removeprefix("sha256:")
    return [shell.quote_command(["same_file", target.base.reference, str(lock.base.size), digest])]


def slugify(name: str) -> str:
    """Convert a recipe's name to a name for files, jobs and Docker tags."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "image"


def name_image(target: Target) -> str:
    """Return the file name of the image without its suffix."""
    return f"{slugify(target.recipe.name)}-{target.site.name}"


def collect_variables(target: Target) -> dict[str, str]:
    """Collect the environment variables of the image: the recipe's, and those that isolate it from the user's home."""
    fixed = {"PYTHONNOUSERSITE": "1"}
    return fixed | dict(target.recipe.variables) | dict(target.recipe.container.env)


def collect_run_variables(target: Target) -> dict[str, str]:
    """Collect the recipe's variables that are not in the image: the run scripts set them for each run."""
    if not target.traits.one_call:
        return {}
    return {**target.recipe.variables, **target.recipe.container.env}


def make_environment_script(target: Target) -> str:
    """Make the script that Apptainer and Singularity source when they start the image."""
    lines = ["# Variables of the recipe, for exec, run and shell alike.", "# shellcheck shell=sh"]
    if target.environment.place != "base":
        lines.append(f'export PATH="{PREFIX}/bin:$PATH"')
        lines.append(
            f'export VIRTUAL_ENV="{PREFIX}"'
            if target.environment.place == "venv"
            else f'export CONDA_PREFIX="{PREFIX}"'
        )
    if target.compat:  # before the host's libcuda, whose folder the engine adds at the end
        lines.append(f'export LD_LIBRARY_PATH="{COMPAT}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    return "\n".join([*lines, *shell.export(collect_variables(target))]) + "\n"


def make_expectations(target: Target) -> dict[str, str]:
    """Make the expected answer of the image to the torch check."""
    torch, gpu = target.environment.torch, target.site.gpu
    answer: dict[str, str] = {"vendor": target.site.vendor}
    # An XPU build compiles for the GPU that it finds; its list does not name others.
    if gpu is not None and gpu.vendor != "intel":
        answer["architecture"] = gpu.target
    if torch is None:
        return answer
    answer["torch"] = torch.local
    if torch.provided and target.site.vendor == "cpu":
        answer["any_build"] = "yes"
    return answer


def make_recipe_json(target: Target) -> str:
    """Make `recipe.json`, the record of the image's inputs; the image keeps it as /opt/recipe/recipe.json."""
    document: dict[str, object] = {
        "recipe": target.recipe.name,
        "digest": target.recipe.digest,
        "site": target.site.name,
        "backend": target.backend,
        "base": target.base.reference,
        "tool": target.context.tool,
        "expect": make_expectations(target),
        "packages": [[package.asked, package.became, package.why] for package in target.packages],
    }
    if target.lock is not None:
        document["lock"] = target.lock.digest
    if find_base_digest(target):
        document["base_digest"] = find_base_digest(target)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def make_labels(target: Target) -> dict[str, str]:
    """Make the labels of the image; ours override labels of the recipe with the same name."""
    ours = {
        "recipe.name": target.recipe.name,
        "recipe.digest": target.recipe.digest,
        "recipe.site": target.site.name,
        "recipe.tool": target.context.tool,
        "org.opencontainers.image.base.name": target.base.reference.removeprefix("docker://"),
    }
    if target.lock is not None:
        ours["recipe.lock"] = target.lock.digest
    if find_base_digest(target):
        ours["org.opencontainers.image.base.digest"] = find_base_digest(target)
    return dict(target.recipe.container.labels) | ours


# The newest pip for Python 3.9 and later, on pypi.org (checked 2026-11-23).
PIP = "pip==26.0.1 --hash=sha256:bdb1b08f4274833d62c1aa29e20907365a2ceb950410df15fc9521bad440122b\n"


def make_environment_file(target: Target, *, with_pip: bool) -> str:
    """Make a conda environment file; `with_pip` adds all pip packages as one section (cotainr, tykky).

    With a lock it lists version and build of every conda package: the format has hashes for pip only.
    """
    environment, lock = target.environment, target.lock
    exact: list[object] = (
        [f"{package.name}={package.version}={package.build}" for package in lock.conda] if lock else []
    )
    dependencies: list[object] = exact or [*environment.conda]
    if with_pip and (environment.torch_lines or environment.pip_lines):
        dependencies.append({"pip": make_pip_section(target)})
    document = {
        "name": slugify(target.recipe.name),
        "channels": list(environment.channels),
        "dependencies": dependencies,
    }
    return to_yaml(document)


def make_pip_section(target: Target) -> list[str]:
    """Make the lines for one call of pip that installs everything.

    The torch family is pinned with its local version, which no file of the default index has, so it can only come from
    the extra index. https://packaging.python.org/en/latest/specifications/version-specifiers/#local-version-identifiers
    """
    environment = target.environment
    lines = list(environment.pip_options)
    torch = environment.torch
    if torch and not torch.provided and "://" in torch.index:
        lines.append(f"--extra-index-url {torch.index}")
    if target.lock is not None:
        lines = [line for line in lines if line not in (REQUIRE_HASHES, "--pre")]
        return [
            *lines,
            REQUIRE_HASHES,
            *target.lock.list_requirements(torch=True),
            *target.lock.list_requirements(torch=False),
        ]
    return [*lines, *environment.torch_lines, *environment.pip_lines]


def make_torch_requirements(target: Target) -> str:
    """Make the requirements of the torch family, with the one index that may serve them."""
    environment = target.environment
    torch = environment.torch
    if not environment.torch_lines:
        return ""
    index = [f"--index-url {torch.index}"] if torch and "://" in torch.index else []
    if target.lock is not None:
        return _join_lines((*index, REQUIRE_HASHES, *target.lock.list_requirements(torch=True)))
    return _join_lines((*index, *environment.torch_lines))


def make_other_requirements(target: Target) -> str:
    """Make the requirements of all other packages, from the indexes of the recipe and the environment."""
    environment, lock = target.environment, target.lock
    if lock is None:
        return _join_lines((*environment.pip_options, *environment.pip_lines)) if environment.pip_lines else ""
    # Without torch lines there is no first call; then a dependency requires torch, from the same index.
    family = () if environment.torch_lines else lock.list_requirements(torch=True)
    lines = (*family, *lock.list_requirements(torch=False))
    kept = [line for line in environment.pip_options if line not in (REQUIRE_HASHES, "--pre")]
    return _join_lines((*kept, REQUIRE_HASHES, *lines)) if lines else ""


def make_own_requirements(target: Target) -> str:
    """Make the requirements of the recipe's own folders, as the build sees their copies."""
    environment = target.environment
    if not environment.own:
        return ""
    kept = (line for line in environment.pip_options if line not in (REQUIRE_HASHES, "--pre"))
    places = (f"{BUILD}/{one.place}" + (f"[{','.join(one.extras)}]" if one.extras else "") for one in environment.own)
    return _join_lines((*kept, *places))


def make_explicit_list(target: Target) -> str:
    """Make conda's list of package files (@EXPLICIT); local files have the paths that the build sees.

    micromamba checks the sha256 of each file before it unpacks it (libmamba 2.3.2, src/core/package_fetcher.cpp).
    """
    lock = target.lock
    if lock is None or not lock.conda:
        return ""
    lines = [f"{_locate_package(package)}#sha256:{package.sha256}" for package in lock.conda]
    return _join_lines((f"# platform: {lock.platform}", "@EXPLICIT", *lines))


def _locate_package(package: CondaPackage) -> str:
    local = package.url.startswith("file://")
    return f"file:///mnt/conda/{package.subdir}/{package.file_name}" if local else package.url


def _list_local_packages(target: Target) -> str:
    """List the packages of local channels: sha256, path among the build's inputs, path on this machine."""
    packages = [package for package in (target.lock.conda if target.lock else ()) if package.url.startswith("file://")]
    rows = []
    for package in packages:
        row = (package.sha256, f"{package.subdir}/{package.file_name}", unquote(package.url.removeprefix("file://")))
        if is_misleading(package.url) or any(CONTROL.search(part) for part in row):  # also refused when a lock is read
            message = f"the address '{sanitize(package.url)}' of a locked package is another path or line when read"
            raise make_config_error("lock-faulty", message, at=Location(), fix="run `recipe lock SITE ENV` again")
        rows.append("\t".join(row))
    return _join_lines(tuple(rows))


def make_image_files(target: Target) -> tuple[PlanFile, ...]:
    """Make every file of `image/` that is not empty."""
    environment, container = target.environment, target.recipe.container
    solved = environment.place == "conda" and target.lock is None  # by conda's solver, while the image is built
    texts = {
        "install.sh": read_template("install.sh"),
        "times.py": read_template("times.py") if target.traits.sets_times else "",
        "verify.py": read_template("verify.py"),
        "protect.py": read_template("protect.py") if environment.place != "conda" else "",
        "place": environment.place + "\n",
        "lock": f"{target.lock.digest}\n" if target.lock else "",
        "env.sh": make_environment_script(target),
        "labels.txt": "".join(f"{name} {value}\n" for name, value in sorted(make_labels(target).items())),
        "recipe.json": make_recipe_json(target),
        "system.txt": _join_lines(container.system),
        "environment.yml": make_environment_file(target, with_pip=False) if solved else "",
        "conda-explicit.txt": make_explicit_list(target),
        "conda-local.txt": _list_local_packages(target),
        "python-version": _make_python_line(target),
        "cuda-version": f"{environment.cuda}\n" if environment.cuda else "",
        "requirements-torch.txt": make_torch_requirements(target),
        "requirements.txt": make_other_requirements(target),
        "requirements-own.txt": make_own_requirements(target),
        "requirements-commits.txt": _join_lines(target.lock.list_commits()) if target.lock else "",
        "constraints.txt": _join_lines(environment.constraints)
        if (environment.pip_lines or environment.own) and target.lock is None
        else "",
        # A lock has hashes for everything except the build tools.
        "compiled.txt": _join_lines(environment.compiled) if target.lock is None else "",
        "tools.txt": _join_lines(environment.tools) if target.lock is None else "",
        "pip.txt": PIP if environment.pip_apart else "",
        "protected.txt": _join_lines(environment.protected),
        "run.sh": make_run_script(container.run),
    }
    return tuple(PlanFile(path=f"{IMAGE_FOLDER}/{name}", text=text) for name, text in texts.items() if text)


def make_run_script(commands: tuple[str, ...], *, done: str = "") -> str:
    """Make the script with the recipe's own commands, which notes in $recipe_reached which one has begun.

    They share one shell, so that `cd` and variables last; what ends it (`exit 0`, `exec`) would skip the others. A trap
    can hide that the last one failed: with one the notes say `until` before the end of all. `done` names a variable
    with the number of those that have run before, which are skipped.
    """
    look = '[ -z "${recipe_install:-}" ] || sh "$recipe_install" look; '  # what the previous command has closed
    noted = '{ %secho "%d of %d%s" >"$recipe_reached"; } 2>/dev/null\n'  # not seen in what `sh -x` prints
    total, until = len(commands), " until" if any("trap" in command for command in commands) else ""
    lines = [
        f"{noted % (look if at > 1 else '', at, total, until)}{_skip(command.rstrip(), at, done=done)}\n"
        for at, command in enumerate(commands, 1)
    ]
    return "".join([*lines, noted % (look, total, total, "")] if until else lines)


def _skip(command: str, at: int, *, done: str) -> str:
    return f'if [ "${{{done}:-0}}" -lt {at} ]; then\n{command}\nfi' if done else command


def _make_python_line(target: Target) -> str:
    """Return the required Python if the base image's Python is used and its version is unknown."""
    environment = target.environment
    if environment.place == "venv" and target.base.python is None and environment.python:
        return environment.python + "\n"
    return ""


def list_image_copies(target: Target) -> tuple[Copy, ...]:
    """List the user's own files, arranged below `image/root` as in the image."""
    return tuple(
        Copy(source=source, path=f"{IMAGE_FOLDER}/root{destination}")
        for source, destination in sorted(target.recipe.container.files.items())
    ) + tuple(Copy(source=one.source, path=f"{IMAGE_FOLDER}/{one.place}") for one in target.environment.own)


def _join_lines(items: tuple[str, ...]) -> str:
    return "".join(f"{item}\n" for item in items)

"""What goes into an image: the folder `image/` of a plan. Everything a recipe says travels here as data files."""

from __future__ import annotations

import json
import re

from builder.compile import shell
from builder.compile.render import verbatim
from builder.model.document import to_yaml
from builder.model.plan import Copy, File
from builder.model.target import Target

FOLDER = "image"
PREFIX = "/opt/env"


def slug(name: str) -> str:
    """A recipe's name for files, jobs and Docker tags."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "image"


def image_name(target: Target) -> str:
    """The file name of the image, without its suffix."""
    return f"{slug(target.recipe.name)}-{target.site.name}"


def variables(target: Target) -> dict[str, str]:
    """Environment variables of the image: the recipe's, after what keeps it apart from the user's home."""
    fixed = {"PYTHONNOUSERSITE": "1"}
    return fixed | dict(target.recipe.variables) | dict(target.recipe.container.env)


def environment_script(target: Target) -> str:
    """The script that Apptainer and Singularity source when they enter the image."""
    lines = ["# Variables of the recipe, for exec, run and shell alike.", "# shellcheck shell=sh"]
    if target.environment.place != "base":
        lines.append(f'export PATH="{PREFIX}/bin:$PATH"')
        lines.append(
            f'export VIRTUAL_ENV="{PREFIX}"'
            if target.environment.place == "venv"
            else f'export CONDA_PREFIX="{PREFIX}"'
        )
    return "\n".join([*lines, *shell.export(variables(target))]) + "\n"


def expected(target: Target) -> dict[str, str]:
    """What the image must answer when it is asked for its torch."""
    torch = target.environment.torch
    if torch is None:
        return {"vendor": target.site.vendor}
    answer = {"vendor": target.site.vendor, "torch": torch.local}
    if torch.provided and target.site.vendor == "cpu":
        answer["any_build"] = "yes"
    return answer


def record(target: Target) -> str:
    """`recipe.json`: what the image was made from; it stays in the image as /opt/recipe/recipe.json."""
    document = {
        "recipe": target.recipe.name,
        "digest": target.recipe.digest,
        "site": target.site.name,
        "backend": target.backend,
        "base": target.base.reference,
        "tool": target.context.tool,
        "expect": expected(target),
        "packages": [[package.asked, package.became, package.why] for package in target.packages],
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def labels(target: Target) -> dict[str, str]:
    """Labels of the image: ours say what it was made from; the recipe's own are added and win over none of ours."""
    ours = {
        "recipe.name": target.recipe.name,
        "recipe.digest": target.recipe.digest,
        "recipe.site": target.site.name,
        "recipe.tool": target.context.tool,
        "org.opencontainers.image.base.name": target.base.reference.removeprefix("docker://"),
    }
    return dict(target.recipe.container.labels) | ours


def environment_file(target: Target, *, with_pip: bool) -> str:
    """A conda environment file; with `pip`, everything of pip's too, in one section (cotainr, tykky)."""
    environment = target.environment
    dependencies: list[object] = [*environment.conda]
    if with_pip and (environment.torch_lines or environment.pip_lines):
        dependencies.append({"pip": pip_section(target)})
    document = {"name": slug(target.recipe.name), "channels": list(environment.channels), "dependencies": dependencies}
    return to_yaml(document)


def pip_section(target: Target) -> list[str]:
    """All of pip's lines for one call of pip.

    The torch family is pinned with its local version, which no file of the default index has: the extra index cannot
    be passed by. https://packaging.python.org/en/latest/specifications/version-specifiers/#local-version-identifiers
    """
    environment = target.environment
    lines = list(environment.pip_options)
    torch = environment.torch
    if torch and not torch.provided and "://" in torch.index:
        lines.append(f"--extra-index-url {torch.index}")
    return [*lines, *environment.torch_lines, *environment.pip_lines]


def torch_requirements(target: Target) -> str:
    """The torch family and the one index it may come from."""
    environment = target.environment
    torch = environment.torch
    if not environment.torch_lines:
        return ""
    index = [f"--index-url {torch.index}"] if torch and "://" in torch.index else []
    return _lines((*index, *environment.torch_lines))


def image_files(target: Target) -> tuple[File, ...]:
    """Every file of `image/`; one is there only when there is something in it."""
    environment, container = target.environment, target.recipe.container
    texts = {
        "install.sh": verbatim("install.sh"),
        "verify.py": verbatim("verify.py"),
        "protect.py": verbatim("protect.py") if environment.place != "conda" else "",
        "place": environment.place + "\n",
        "env.sh": environment_script(target),
        "labels.txt": "".join(f"{name} {value}\n" for name, value in sorted(labels(target).items())),
        "recipe.json": record(target),
        "system.txt": _lines(container.system),
        "environment.yml": environment_file(target, with_pip=False) if environment.place == "conda" else "",
        "python-version": _python_line(target),
        "cuda-version": _cuda_line(target),
        "requirements-torch.txt": torch_requirements(target),
        "requirements.txt": _lines((*environment.pip_options, *environment.pip_lines)) if environment.pip_lines else "",
        "constraints.txt": _lines(environment.constraints) if environment.pip_lines else "",
        "protected.txt": _lines(environment.protected),
        "run.sh": "".join(f"{command.rstrip()}\n" for command in container.run),
    }
    return tuple(File(path=f"{FOLDER}/{name}", text=text) for name, text in texts.items() if text)


def _python_line(target: Target) -> str:
    """A Python to insist on, where the base image's is used and is not known."""
    environment = target.environment
    if environment.place == "venv" and target.base.python is None and environment.python:
        return environment.python + "\n"
    return ""


def _cuda_line(target: Target) -> str:
    """The CUDA that conda's solver is told: the site's driver's, not the build host's, which often has none."""
    gpu = target.site.gpu
    nvidia = gpu is not None and gpu.vendor == "nvidia" and target.environment.place == "conda"
    return f"{gpu.cuda_native}\n" if nvidia and gpu and gpu.cuda_native else ""


def image_copies(target: Target) -> tuple[Copy, ...]:
    """The user's own files, laid out below `image/root` as they will lie in the image."""
    return tuple(
        Copy(source=source, path=f"{FOLDER}/root{destination}")
        for source, destination in sorted(target.recipe.container.files.items())
    )


def _lines(items: tuple[str, ...]) -> str:
    return "".join(f"{item}\n" for item in items)

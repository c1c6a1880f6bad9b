"""A Dockerfile or a definition file to a draft of a recipe that is for every site.

What installs packages becomes packages; what names one vendor is opened; other commands stay commands; all else is left
with its line. Nothing is run, and of the folder only the files are read that the file itself copies.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

from builder.model.finding import ConfigError, Location
from builder.model.text import make_config_error, sanitize
from builder.parse.build_file import BuildFile, BuildStep, Script, has_variable, is_variable
from builder.parse.container import SYSTEM
from builder.parse.image_paths import ImagePaths
from builder.parse.install_commands import SETTINGS, InstallCommand, read_command
from builder.parse.matchspec import parse_conda_spec
from builder.parse.recipe import load_recipe
from builder.parse.recipe_draft import DraftItem, Part, RecipeDraft
from builder.parse.requirement import parse_requirement
from builder.parse.shell_text import split_commands
from builder.parse.vendor_pins import (
    BUILD_TOOLS,
    CONDA_LIBRARIES,
    CONDA_TORCH,
    PYTHON_PACKAGES,
    SITES_BASE,
    SYSTEM_LIBRARIES,
    VENDOR_CHANNELS,
    is_vendor_index,
    open_requirement,
    read_base,
)
from builder.parse.yaml import read_text

WITH_TORCH = "it comes with the torch or the base image of a site"
OWN_PYTHON = "the recipe brings its own Python and pip"
# Variables that a base image, an installer or the environment itself sets.
MACHINE_VARIABLES = re.compile(
    r"(?:LD_)?LIBRARY_PATH|PATH|CPATH|C_INCLUDE_PATH|(?:CUDA|CUDNN|NCCL|NVIDIA|NV|ROCM|HIP|HSA|CONDA|MAMBA|PIP|UV|POETRY)_.*"
    r"|VIRTUAL_ENV|DEBIAN_FRONTEND|SHELL|HOME|USER|PWD|TORCH_CUDA_ARCH_LIST|FORCE_CUDA|PYTORCH_ROCM_ARCH|PROMPT_COMMAND"
)
# Commands that no recipe needs, and why.
NEEDLESS = (
    (r"(?:\S*/)?(?:uv sync|uv pip sync|poetry install|pipenv (?:install|sync)|pixi install|pdm (?:install|sync))\b.*",
     "recipe reads the pyproject.toml or the pixi.toml itself"),
    (r"(?:\S*/)?(?:pip[0-9.]*|python[0-9.]* -m pip|uv pip|conda|mamba|micromamba) (?:uninstall|remove)\b.*",
     "remove the package that it is about from the dependencies"),
    (r"(?:adduser|useradd|groupadd|addgroup|usermod|chown|chgrp)\b.*", "an image runs as the user of the job"),
    (r"(?:add-apt-repository|apt-key|apt-add-repository)\b.*|locale-gen\b.*",
     "the sources of packages are those of the base image"),
    (r"dpkg -i \S*cuda\S*|(?:wget|curl) .*(?:cuda-keyring|nvidia\.com/compute|repo\.radeon)\S*.*",
     "it comes with the torch or the base image of a site"),
)  # fmt: skip
OWN_PATH = re.compile(r"conda|mamba|venv|virtualenv|miniforge")
VENDOR_WORDS = re.compile(r"\+(?:cu\d|rocm|xpu|cpu)|pytorch\.org/whl|^\s*(?:nvidia-|pytorch-triton)", re.MULTILINE)
COMMAND_LIMIT = 5000
LOCAL = re.compile(r"\.{0,2}/|\.{1,2}(?:\[|$)")


def convert_build_file(build: BuildFile, *, folder: Path, prefix: str) -> RecipeDraft:
    """Convert a file; `folder` is what its sources are relative to, `prefix` the way there from the recipe's folder."""
    return _Converter(build, paths=ImagePaths(folder=folder, prefix=prefix, context=build.alone)).convert()


class _Converter:
    def __init__(self, build: BuildFile, *, paths: ImagePaths) -> None:
        self.build, self.paths = build, paths
        self.draft = RecipeDraft()
        self.values: dict[str, str] = {}
        self.exports: dict[str, tuple[str, bool]] = {}  # commands that set variables; whether each command needs it
        self.count = 0  # commands so far
        self.inside = ""  # the folder in which the last kept command was
        self.python: tuple[str, int] | None = None

    def convert(self) -> RecipeDraft:
        self._convert_base()
        for step in self.build.steps:
            self._convert_step(step)
        self._finish()
        return self.draft

    def _add(self, part: Part, value: str, line: int, *, name: str = "", note: str = "") -> None:
        self.draft.add(DraftItem(part=part, value=value, line=line, name=name, note=note))

    def _convert_base(self) -> None:
        base, line = read_base(self.build.base), self.build.base_line
        if not self.build.base:
            pass  # it is left among the steps
        elif base.image:
            self._add("base", base.image, line)
        else:
            self.draft.leave(line, self.build.base, SITES_BASE)
        for name in base.packages:
            self._add("pip", name, line, note=f"of '{self.build.base}'")
        self.python = (base.python, line) if base.python else None

    def _convert_step(self, step: BuildStep) -> None:
        if step.kind == "left":
            self.draft.leave(step.line, step.text, step.why)
        elif step.kind in ("variable", "argument"):
            self._convert_variable(step)
        elif step.kind == "label":
            self._add("labels", step.value, step.line, name=step.name)
        elif step.kind == "folder":
            self.paths.set_folder(step.value)
        elif step.kind == "copy":
            for text, why in self.paths.add_copy(step):
                self.draft.leave(step.line, f"COPY {text}" if self.build.alone else text, why)
        elif step.script is not None:
            self._convert_script(step.script, packages=step.packages)

    def _convert_variable(self, step: BuildStep) -> None:
        name, value = step.name, step.value
        if is_variable(name) and not has_variable(value):
            self.values[name] = value
            self.exports[name] = (f"export {name}={shlex.quote(value)}", False)
        if step.kind == "argument" or step.packages:
            return
        if MACHINE_VARIABLES.fullmatch(name):
            self.draft.leave(step.line, f"{name}={value}", "the base image, the installers or the site set it")
        elif has_variable(value):
            self.draft.leave(step.line, f"{name}={value}", "its value depends on other variables")
        else:
            self._add("env", value, step.line, name=name)

    def _convert_script(self, script: Script, *, packages: bool) -> None:
        begin = self.paths.folder_inside
        commands = split_commands(script.text)
        self.count += len(commands)
        if self.count > COMMAND_LIMIT:
            message = f"the file has more than {COMMAND_LIMIT} commands"
            raise make_config_error("init-from", message, at=Location(file=self.build.file), fix="write less into it")
        for command in commands:
            text = command.text if "<<" in command.text else re.sub(r"(?<![ \t])[ \t]*\\\n[ \t]*", " ", command.text)
            text = re.sub(r"(?<!\s)\s*\\\Z", "", text)  # what it was continued with was empty
            text = text if re.search(r"['\"\n\\]", text) else " ".join(text.split())
            if "\n" in text:
                before = script.text[: command.start]
                text = textwrap.dedent(before[len(before.rstrip(" \t")) :] + text).lstrip()
            line = script.find_line(command.start)
            found = read_command(text, values=self.values)
            if found.kind == "set":
                self._note_variables(found, text)
            elif found.kind == "folder":
                self.paths.set_folder(found.words[0])
            elif found.kind in ("pip", "conda", "environment") or not packages:
                self._convert_command(found, text, line)
        if self.build.alone or packages:
            self.paths.folder_inside = begin

    def _note_variables(self, found: InstallCommand, text: str) -> None:
        for name, value in found.options:
            if not has_variable(value):
                self.values[name] = value
            own = name == "PATH" and OWN_PATH.search(value)
            if not SETTINGS.fullmatch(name) and not own:
                self.exports[name] = (text, text.startswith("export"))

    def _convert_command(self, found: InstallCommand, text: str, line: int) -> None:
        needless = next((why for pattern, why in NEEDLESS if re.fullmatch(pattern, text)), "")
        if needless:
            self.draft.leave(line, text, needless)
        elif found.kind == "pip":
            self._convert_pip(found, text, line)
        elif found.kind == "conda":
            self._convert_conda(found, line)
        elif found.kind == "environment":
            self._convert_environment(found, text, line)
        elif found.kind == "system":
            for word in found.words:
                self._convert_system(word, line)
        elif found.kind == "other" and not self._removes_copy(text):
            self._keep(text, line)

    def _removes_copy(self, text: str) -> bool:
        """Whether a command removes what was copied for the build alone."""
        words = text.split()
        return words[0] == "rm" and all(
            self.paths.find_source(word) in self.paths.read for word in words[1:] if not word.startswith("-")
        )

    def _keep(self, text: str, line: int) -> None:
        """Keep a command, in its folder and with the variables that it reads."""
        for name, (export, always) in list(self.exports.items()):
            if always or re.search(rf"\$\{{?{name}\b", text):
                self._add("run", export, line)
                del self.exports[name]
        if self.paths.folder_inside != self.inside:
            folder = shlex.quote(self.paths.folder_inside or "/")
            self._add("run", f"mkdir -p {folder} && cd {folder}", line)
            self.inside = self.paths.folder_inside
        self._add("run", text, line)

    def _convert_pip(self, found: InstallCommand, text: str, line: int) -> None:
        local = [word for word in found.words if _is_local(word)]
        local += [value for name, value in found.options if name == "--editable" and "://" not in value]
        if not all(self.paths.find_source(re.sub(r"\[[^\]]*\]$", "", word)) for word in local):
            self._keep(text, line)
            return
        by_index = any(is_vendor_index(value) for _, value in found.options)
        for name, value in found.options:
            self._convert_option(name, value, text, line, by_index=by_index)
        for word in found.words:
            if _is_local(word):
                self._add_local(word, line, editable=False)
            else:
                self._convert_requirement(word, line, by_index=by_index)

    def _add_local(self, word: str, line: int, *, editable: bool) -> None:
        path, bracket, extras = word.partition("[")
        source = self.paths.find_source(path)
        named = self.paths.name_source(source)
        named = named if named.startswith(("/", ".")) else f"./{named}"
        self._add("pip", ("-e " if editable else "") + named + bracket + extras, line)
        self.paths.read.add(source)

    def _convert_option(self, name: str, value: str, text: str, line: int, *, by_index: bool) -> None:
        if name == "--requirement":
            self._convert_requirements(value, text, line, by_index=by_index)
        elif name == "--editable" and "://" not in value:
            self._add_local(value, line, editable=True)
        elif name == "--constraint" and (source := self.paths.find_source(value)):
            self._add("pip", f"-c {self.paths.name_source(source)}", line)
        elif is_vendor_index(value):
            self.draft.leave(line, f"{name} {value}", "the index is that of the site's build of torch")
        elif name == "--index-url" and "//pypi.org/" not in value:
            self._add("pip", f"--extra-index-url {value}", line, note="was --index-url")
        elif name == "--pre" and not by_index:
            self._add("pip", name, line)
        elif name not in ("--pre", "--index-url"):
            self._add("pip", f"{name} {value}" if name != "--editable" else f"-e {value}", line)

    def _convert_requirement(self, word: str, line: int, *, by_index: bool, note: str = "") -> None:
        opened = open_requirement(word, by_index=by_index)
        if opened is None:
            self.draft.leave(line, word, WITH_TORCH)
            return
        try:
            if not opened.startswith("-"):
                parse_requirement(opened.partition(" --")[0], at=Location(file="", line=line))
        except ConfigError as error:
            self.draft.leave(line, word, error.findings[0].message)
            return
        changed = f"was '{word}', the site's build is taken" if opened != word else ""
        self._add("pip", opened, line, note=changed or note)

    def _convert_requirements(self, path: str, text: str, line: int, *, by_index: bool) -> None:
        """A requirements file is named, or its lines are taken where they name a vendor."""
        source = self.paths.find_source(path)
        if source.endswith((".toml", ".cfg", ".py")):
            self.draft.leave(line, text, f"recipe reads '{sanitize(source)}' itself: `recipe check SITE {source}`")
            return
        try:
            content = read_text(self.paths.folder / source, what="requirements file") if source else None
        except ConfigError as error:
            self.draft.leave(line, text, error.findings[0].message)
            return
        if content is None:
            self.draft.leave(line, text, f"there is no '{sanitize(path)}' in the folder of the file", missing=True)
            return
        self.paths.read.add(source)
        if not by_index and not VENDOR_WORDS.search(content):
            self._add("pip", f"-r {self.paths.name_source(source)}", line)
            return
        for row in content.replace("\\\n", " ").splitlines():
            plain = re.sub(r"(?:^|\s)#.*$", "", row).strip()
            option = re.match(r"(--?[a-z][a-z-]*)[ =]*(.*)", plain)
            if option and is_vendor_index(option[2]):
                self.draft.leave(line, plain, "the index is that of the site's build of torch")
            elif plain:
                named = by_index or "pytorch.org/whl" in content
                self._convert_requirement(plain, line, by_index=named, note=f"of {source}")

    def _convert_conda(self, found: InstallCommand, line: int) -> None:
        for name, value in found.options:
            if name == "--channel":
                self._convert_channel(value, line)
        for word in found.words:
            self._convert_spec(word, line)

    def _convert_channel(self, value: str, line: int) -> None:
        if value in VENDOR_CHANNELS:
            self.draft.leave(line, f"channel {value}", "its packages are for one vendor")
        else:
            self._add("channels", value, line)

    def _convert_spec(self, word: str, line: int, *, note: str = "") -> None:
        channel, separator, plain = word.rpartition("::")
        plain = plain if separator and channel in VENDOR_CHANNELS else word
        name = re.split(r"[\s=<>!~\[]", plain, maxsplit=1)[0].lower()
        if name in CONDA_TORCH:
            self._add("pip", CONDA_TORCH[name], line, note=f"was '{word}', the site's build is taken")
        elif CONDA_LIBRARIES.fullmatch(name) or channel == "nvidia":
            self.draft.leave(line, word, WITH_TORCH)
        elif name != "pip":
            try:
                parse_conda_spec(plain, at=Location(file="", line=line))
            except ConfigError as error:
                self.draft.leave(line, word, error.findings[0].message)
            else:
                self._add("conda", plain, line, note=note)

    def _convert_environment(self, found: InstallCommand, text: str, line: int) -> None:
        for name, path in found.options:
            source = self.paths.find_source(path) if name == "--file" else ""
            if name == "--file" and not source:
                self.draft.leave(line, text, f"there is no '{sanitize(path)}' in the folder of the file", missing=True)
            elif name == "--file":
                self._take_environment(source, text, line)
        self._convert_conda(found, line)

    def _take_environment(self, source: str, text: str, line: int) -> None:
        """Take the content of an environment file of conda, or of a list of its packages."""
        self.paths.read.add(source)
        note = f"of {source}"
        try:
            if source.endswith((".txt", ".in")):
                rows = read_text(self.paths.folder / source, what="list of packages").splitlines()
                for row in (re.sub(r"#.*", "", row).strip() for row in rows):
                    if row:
                        self._convert_spec(row, line, note=note)
                return
            recipe = load_recipe(self.paths.folder / source, shown=source)
        except ConfigError as error:
            first = error.findings[0]
            where = f"{first.at.file}:{first.at.line}: " if first.at and first.at.line else ""
            self.draft.leave(line, text, f"{where}{first.message}")
            return
        for channel in recipe.channels:
            self._convert_channel(channel, line)
        for spec in recipe.conda:
            self._convert_spec(spec.text, line, note=note)
        addresses = [*recipe.pip_options.extra_index_urls, recipe.pip_options.index_url]
        by_index = any(is_vendor_index(address) for address in addresses)
        for address in addresses:
            if address and not is_vendor_index(address):
                self._add("pip", f"--extra-index-url {address}", line, note=note)
        for requirement in recipe.pip:
            self._convert_requirement(requirement.text, line, by_index=by_index, note=note)
        for name, value in recipe.variables.items():
            self._add("env", value, line, name=name)

    def _convert_system(self, word: str, line: int) -> None:
        plain = re.sub(r"=[^=]*\*$|:(?:amd64|arm64|i386)\b|/[a-z-]+$", "", word)
        python = PYTHON_PACKAGES.fullmatch(plain)
        if python:
            if python["minor"] and self.python is None:
                self.python = (f"3.{python['minor']}", line)
            self.draft.leave(line, word, OWN_PYTHON)
        elif SYSTEM_LIBRARIES.fullmatch(plain):
            self.draft.leave(line, word, WITH_TORCH)
        elif SYSTEM.fullmatch(plain):
            self._add("system", plain, line)
        else:
            self.draft.leave(line, word, "it is not the name of one package")

    def _finish(self) -> None:
        commands = self.draft.select("run")
        for item in [one for one in self.draft.select("system") if one.value in BUILD_TOOLS]:
            if not any(re.search(rf"\b{re.escape(item.value)}\b", one.value) for one in commands):
                self.draft.items.remove(item)
                self.draft.leave(item.line, item.value, "only a build uses it; container.system is its place")
        for source, target, line in self.paths.copies:
            if source in self.paths.read and not (self.paths.folder / source).is_dir():
                continue  # the recipe has its content
            self._add("files", target, line, name=self.paths.name_source(source))
        if self.python and not any(re.match(r"python(?![\w-])", one.value) for one in self.draft.select("conda")):
            version, line = self.python
            self.draft.items.insert(0, DraftItem(part="conda", value=f"python={version}", line=line))
        if self.draft.select("conda") and not self.draft.select("channels"):
            self._add("channels", "conda-forge", 0)


def _is_local(word: str) -> bool:
    return LOCAL.match(word) is not None or (word.endswith((".whl", ".tar.gz", ".zip")) and "://" not in word)

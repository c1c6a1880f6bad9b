"""RECIPE_*, SOURCE_DATE_EPOCH and HOME, each looked at before a command begins: a wrong one never counts as unset.

Those of sites and of micromamba's image are read in inputs.py. Step scripts look again, for those who run them by hand.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from builder.model.finding import BuilderError, ConfigError, Finding, Location
from builder.model.secrets import redact
from builder.model.site import GpuVisibility
from builder.model.text import exists, is_folder, sanitize
from builder.model.variables import split_words

LAYERS = ("build", "fetch", "bundle")
MAKES = ("build", "plan", "check", "lock", "fetch", "bundle")
STARTS = ("build", "smoke", "run", "shell")
LARGEST_GIB = 2.0**40
SECONDS = 30.0  # for a program to say what it is


@dataclass(frozen=True, kw_only=True)
class Variable:
    """Which commands use it (none: each does), what a right value is, and an example; `option` overrules it."""

    commands: tuple[str, ...] = ()
    wrong: Callable[[str], str]  # what a value is instead, "" where it is right
    write: str
    option: str = ""


def _check_gib(text: str) -> str:
    try:
        right = 0.0 <= float(text) < LARGEST_GIB  # not for NaN and infinity either
    except ValueError:
        right = False
    return "" if right else "it is no number of GiB"


def _check_port(text: str) -> str:
    return "" if text.isascii() and text.isdecimal() and 0 < int(text) < 65536 else "it is no number of a port"


def _check_folder(text: str) -> str:
    if is_folder(text):
        return ""
    from builder.system.files import find_closed_folder

    if closed := find_closed_folder(Path(text).absolute()):
        return closed.message
    return "it is no folder" if exists(Path(text)) else "there is no such folder"


def _check_place(text: str) -> str:
    """A folder, or where one can be made."""
    return "" if is_folder(text) or not exists(Path(text)) else "it is no folder"


def _check_home(text: str) -> str:
    if text.startswith("~"):
        return "it is no path: the shell replaces ~ only outside of quotes"
    return "" if text.startswith("/") or not text else "it is not an absolute path"


def _check_program(text: str) -> str:
    return "" if shutil.which(text) else "there is no such program"


def _check_uv(text: str) -> str:
    if wrong := _check_program(text):
        return wrong
    from builder.layers.uv import WANTED, is_usable

    return "" if is_usable(shutil.which(text) or text) else f"it is not {WANTED}"


def _check_python(text: str) -> str:
    if wrong := _check_program(text):
        return wrong
    from builder.sif.errors import LayeringError
    from builder.sif.programs import ask

    question = "import sys; sys.stdout.write(f'python {sys.version_info >= (3, 10)}')"
    try:
        _, said, _ = ask([text, "-E", "-S", "-c", question], seconds=SECONDS)
    except LayeringError as error:
        return str(error)
    return "" if said.strip() == "python True" else "it is not a Python from 3.10 on"


def _check_switch(text: str) -> str:
    """As Apptainer reads it: https://pkg.go.dev/strconv#ParseBool."""
    right = text.lower() in ("1", "0", "t", "f") or text in ("true", "True", "TRUE", "false", "False", "FALSE")
    return "" if right else "it is neither true nor false"


def _check_readable(text: str) -> str:
    return "" if Path(text).is_file() and os.access(text, os.R_OK) else "it is no file that you may read"


def _check_time(text: str) -> str:
    right = text.isascii() and text.isdecimal() and int(text) < 2**32
    return "" if right else "it is not a number of seconds since 1970"


def _check_host(text: str) -> str:
    return "" if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d+)?", text) else "it is no name of a host"


def _check_index(text: str) -> str:
    from builder.model.target import DEFAULT_INDEX
    from builder.model.text import check_url

    if text != DEFAULT_INDEX:
        try:
            check_url(text.replace("{token}", "cpu"), at=Location(), schemes=("https", "http", "file"))
        except BuilderError as error:
            return error.findings[0].message
    return ""


def _make_choice_check(*words: str) -> Callable[[str], str]:
    return lambda text: "" if text in words else f"it is not {' or '.join(words)}"


VARIABLES = {
    "HOME": Variable(wrong=_check_home, write="the path of your home folder"),
    "RECIPE_CACHE_GIB": Variable(
        commands=(*LAYERS, "cache"), wrong=_check_gib, write="RECIPE_CACHE_GIB=40", option="--gib"
    ),
    "RECIPE_CACHE_DIR": Variable(
        commands=(*LAYERS, "cache", "lock"), wrong=_check_place, write="the path of a folder of your own"
    ),
    "RECIPE_CACHE_SHARED": Variable(commands=LAYERS, wrong=_check_folder, write="the path of a cache"),
    "RECIPE_TMPDIR": Variable(
        commands=(*LAYERS, "convert"), wrong=_check_folder, write="the path of a folder of your own", option="--tmpdir"
    ),
    "RECIPE_UV": Variable(commands=(*LAYERS, "lock"), wrong=_check_uv, write="the path of uv"),
    "RECIPE_PYTHON": Variable(commands=LAYERS, wrong=_check_python, write="the path of a Python from 3.10 on"),
    "SOURCE_DATE_EPOCH": Variable(commands=LAYERS, wrong=_check_time, write="SOURCE_DATE_EPOCH=1735689600"),
    "RECIPE_MNIST": Variable(
        commands=("build", "smoke"),
        wrong=_check_folder,
        write="the path of a folder with MNIST's IDX files",
        option="--data",
    ),
    "RECIPE_OFFLINE": Variable(commands=("build",), wrong=_make_choice_check("yes"), write="RECIPE_OFFLINE=yes"),
    "RECIPE_FRESH": Variable(commands=("build",), wrong=_make_choice_check("yes"), write="RECIPE_FRESH=yes"),
    "RECIPE_ACCEPT_LICENSES": Variable(
        commands=("build",), wrong=_make_choice_check("yes", "no"), write="RECIPE_ACCEPT_LICENSES=yes"
    ),
    "RECIPE_EXPECT_GPU": Variable(
        commands=STARTS, wrong=_make_choice_check("yes", "no"), write="RECIPE_EXPECT_GPU=yes"
    ),
    "RECIPE_REGISTRY": Variable(
        commands=(*LAYERS, "lock"), wrong=_check_host, write="a host, as in RECIPE_REGISTRY=nvcr.io"
    ),
    "RECIPE_TORCH_INDEX": Variable(
        commands=MAKES, wrong=_check_index, write="https://HOST/{token}, or default", option="--torch-index"
    ),
    "RECIPE_GPU_VISIBILITY": Variable(
        commands=STARTS,
        wrong=_make_choice_check(*get_args(GpuVisibility)),
        write="RECIPE_GPU_VISIBILITY=rank",
        option="gpu_visibility",
    ),
    "RECIPE_MASTER_PORT": Variable(commands=STARTS, wrong=_check_port, write="RECIPE_MASTER_PORT=29500"),
    "RECIPE_PROCESSES": Variable(
        commands=STARTS, wrong=_make_choice_check("plain", "torchrun"), write="RECIPE_PROCESSES=plain"
    ),
    "RECIPE_DEVICE": Variable(
        commands=STARTS, wrong=_make_choice_check("auto", "cpu", "cuda", "xpu"), write="RECIPE_DEVICE=cpu"
    ),
}
# Options of Apptainer that it also reads from variables, and with which the scripts of a plan do something else
# (`apptainer exec --help` and `apptainer build --help`, 1.4.5). Places, logins and binds are the user's to choose.
ENGINE_OPTIONS = split_words(
    "ADD_CAPS APP APPLY_CGROUPS ARCH BLKIO_WEIGHT BLKIO_WEIGHT_DEVICE CLEANENV COMPAT CONTAIN CONTAINALL CPUS "
    "CPUSET_CPUS CPUSET_MEMS CPU_SHARES CWD DNS DROP_CAPS ENCRYPT ENV ENV_FILE FAKEROOT HOME HOSTNAME IPC MEMORY "
    "MEMORY_RESERVATION MEMORY_SWAP NET NETNS_PATH NETWORK NO_EVAL NO_HOME NO_INIT NO_MOUNT NO_PID NO_PRIVS NO_UMASK "
    "OOM_KILL_DISABLE OVERLAY PID PIDS_LIMIT PWD SANDBOX SCRATCH SECTION SECURITY UNSHARE_IPC UNSHARE_NET UNSHARE_PID "
    "UNSHARE_UTS UPDATE UTS WORKDIR WRITABLE WRITABLE_TMPFS"
)
# Those that switch something on or off; with a word that is neither yes nor no the engine starts nothing.
ENGINE_SWITCHES = split_words(
    "ALLOW_SETUID DEBUG DISABLE_CACHE FIX_PERMS FORCE IGNORE_SUBUID JSON KEEP_PRIVS NOCOLOR NOHTTPS NO_HTTPS NOTEST NV "
    "NVCCLI QUIET ROCM SHARENS SILENT UNDERLAY UNSQUASH USERNS VERBOSE"
)
ENGINE_VARIABLES = (
    {
        f"{engine}_{option}": Variable(
            commands=(*STARTS, "convert"),
            wrong=lambda _: "it changes how the engine runs an image or builds one",
            write="",
        )
        for engine in ("APPTAINER", "SINGULARITY")
        for option in sorted(ENGINE_OPTIONS)
    }
    | {
        f"{engine}_{option}": Variable(
            commands=(*STARTS, "convert"), wrong=_check_switch, write=f"{engine}_{option}=true or =false"
        )
        for engine in ("APPTAINER", "SINGULARITY")
        for option in sorted(ENGINE_SWITCHES)
    }
    | {
        f"{engine}_CONFIG_FILE": Variable(
            commands=(*STARTS, "convert"), wrong=_check_readable, write="the path of the engine's apptainer.conf"
        )
        for engine in ("APPTAINER", "SINGULARITY")
    }
)


NAMES = (*VARIABLES, *ENGINE_VARIABLES)


def check_variables(command: str, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
    """Raise ConfigError with every variable that the command uses and whose value it cannot use."""
    given = {word.partition("=")[0] for word in words}
    used = [
        name
        for name, one in (VARIABLES | ENGINE_VARIABLES).items()
        if command in (one.commands or (command,)) and not (one.option and one.option in given)
    ]
    faults = []
    for name, wrong in find_wrong(environment, names=used).items():
        message = f"'{show_value(environment[name])}' cannot be the value of {name}: {wrong}"
        fix = suggest_value(name)
        if name == "RECIPE_TMPDIR" and not exists(Path(environment[name])):
            fix = f"make it: `mkdir -p {shlex.quote(environment[name])}`, or {fix}"
        faults.append(Finding(code="variable", message=message, at=Location(key=name), fix=fix))
    if faults:
        raise ConfigError(*faults)


def find_wrong(environment: Mapping[str, str], *, names: Iterable[str] = NAMES) -> dict[str, str]:
    """Find the variables whose value no command can use, with what each value is instead."""
    known = VARIABLES | ENGINE_VARIABLES
    found = {name: known[name].wrong(environment[name]) for name in names if environment.get(name)}
    return {name: wrong for name, wrong in found.items() if wrong}


def suggest_value(name: str) -> str:
    """What to write instead of a wrong value."""
    write = (VARIABLES | ENGINE_VARIABLES)[name].write
    return f"write {write}, or unset {name}" if write else f"`unset {name}`"


def show_value(value: str) -> str:
    """A value for a message: a login may be anywhere in a word that is not written as an address."""
    return "***" if "@" in value else sanitize(redact(value), limit=200)

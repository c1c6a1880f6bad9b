"""Base images shaped like those of NVIDIA and Intel, made of the Debian that the tests build on."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recipe_program import TORCH, find_links, run

from stand_ins.wheels import write_wheel

HERE = Path(__file__).parent
# Of Debian's paths those that neither Python nor pip needs.
DROPPED = re.compile(
    r"etc/ssl/|usr/(?:libexec|sbin|share)/|var/(?:cache|lib/dpkg)/|.*/__pycache__/|"
    r"usr/lib/(?:apt|locale|systemd|terminfo)/|usr/lib/python3/dist-packages/(?:setuptools|pkg_resources|wheel)|"
    r"usr/lib/x86_64-linux-gnu/(?:gconv|perl-base)/"
)
# Those that compiled Python files are no part of: what becomes of the base image's own can be seen.
COMPILED = re.compile(DROPPED.pattern.replace(r".*/__pycache__/|", ""))
# And those that Python does not need for a module of its own: half of the rest.
BARE = re.compile(
    DROPPED.pattern + r"|etc/(?:apt|systemd)/|usr/bin/(?:apt|dpkg|gpgv|localedef|ls[a-z]|openssl|perl)|"
    r"usr/lib/(?:dpkg|python3)/|"
    r"usr/lib/python3\.11/(?:asyncio|concurrent|curses|distutils|html|http|idlelib|lib2to3|multiprocessing|pydoc_data|"
    r"sqlite3|test|unittest|wsgiref|xml|lib-dynload/_(?:codecs|curses|decimal|sqlite|ssl|test))|"
    r"usr/lib/x86_64-linux-gnu/(?:security/|lib(?:apt|crypto|db-|ext2fs|gcrypt|gnutls|gss|hogweed|k5|krb5|ncurses|nettle|"
    r"p11|semanage|sepol|smartcols|sqlite|ssl|stdc|systemd|unistring))"
)
SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")


def docker(*words: str | Path) -> str:
    """Run the Docker client, with BuildKit; what it prints."""
    return run(["docker", *words], env={**os.environ, "DOCKER_BUILDKIT": "1"}).expect(0).out


@contextmanager
def importing() -> Iterator[None]:
    """One worker alone: what another one imports under the same name would be another image."""
    with Path(__file__).open("rb") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        yield


def stand_in_debian(tar: Path) -> str:
    """The tests' Debian as a Docker image: imported once a daemon."""
    state = tar.stat()
    name = f"stand-in-debian-python:{state.st_size}-{int(state.st_mtime)}"
    with importing():
        if not docker("image", "ls", "-q", name).strip():
            docker("import", tar, name)
    return name


def small_debian(tar: Path, *, dropped: re.Pattern[str] = DROPPED) -> str:
    """The same with Python and pip and what they need, a quarter of the files: imported once a daemon."""
    state = tar.stat()
    what = hashlib.sha256(dropped.pattern.encode()).hexdigest()[:8]
    name = f"stand-in-small-debian-python:{what}-{state.st_size}-{int(state.st_mtime)}"
    with importing(), tempfile.TemporaryDirectory() as folder:
        if not docker("image", "ls", "-q", name).strip():
            docker("import", write_small_tar(tar, Path(folder, "small.tar"), dropped=dropped), name)
    return name


def write_small_tar(tar: Path, target: Path, *, dropped: re.Pattern[str] = DROPPED) -> Path:
    """The small one as a root file system."""
    with tarfile.open(tar) as source, tarfile.open(target, "w") as small:
        for member in source:
            if not dropped.match(member.name.removeprefix("./")):
                small.addfile(member, source.extractfile(member) if member.isreg() else None)
    return target


def tagged_debian(tar: Path, *, registry: str) -> str:
    """Debian with Python alone in the registry, under its tag there."""
    with tar.open("rb") as alone:  # two workers may want it
        fcntl.flock(alone, fcntl.LOCK_EX)
        name = small_debian(tar, dropped=BARE)
        docker("tag", name, f"{registry}/{name}")
        docker("push", "--quiet", f"{registry}/{name}")
    return f"{registry}/{name}"


def pushed_debian(tar: Path, *, registry: str) -> str:
    """The reference of the same by the digest that it has there."""
    name = tagged_debian(tar, registry=registry)
    (digest,) = docker("image", "inspect", "--format", "{{range .RepoDigests}}{{println .}}{{end}}", name).split()
    return f"docker://{digest}"


def stand_in_ngc_pytorch(tar: Path, *, scratch: Path) -> str:
    """An image shaped like NVIDIA's, with real torch for CPUs; its layers stay in the daemon for the next run."""
    with tar.open("rb") as alone:  # two workers may want it
        fcntl.flock(alone, fcntl.LOCK_EX)
        return _ngc_pytorch(small_debian(tar), scratch=scratch)


def _ngc_pytorch(base: str, *, scratch: Path) -> str:
    file = HERE / "stand-in-ngc-pytorch.Dockerfile"
    digest = hashlib.sha256(f"{base} {TORCH}\n{file.read_text()}".encode()).hexdigest()[:12]
    name = f"stand-in-ngc-pytorch:{digest}"
    if docker("image", "ls", "-q", name).strip():
        return name
    inputs = scratch / "context" / "inputs"
    (inputs / "wheels").mkdir(parents=True)
    for folder in filter(os.path.isdir, find_links()):
        for wheel in Path(folder).glob(f"torch-{TORCH}*.whl"):
            shutil.copy(wheel, inputs / "wheels")
    certificates = os.environ.get("PIP_CERT", "")
    if Path(certificates).is_file():
        shutil.copy(certificates, inputs / "ca.pem")
    arguments = {"BASE": base, "TORCH": TORCH, **{key: os.environ[key] for key in SETTINGS if os.environ.get(key)}}
    words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    docker("build", "--quiet", "--tag", name, "--file", file, *words, scratch / "context")
    shutil.rmtree(scratch / "context")
    return name


def torch_of_few_lines(version: str) -> str:
    """A stand-in for a torch that is built for CPUs."""
    text = STAND_IN_TORCH.replace("2.8.0+xpu", version).replace('"20250101"', "None")
    return text.replace("is built for Intel's GPUs", "is built for CPUs")


def stand_in_few_lines(tar: Path, *, scratch: Path) -> str:
    """An image whose torch is a few lines: for what becomes of a base image's torch, whatever it can do."""
    context = scratch / "few-lines"
    write_wheel(context, name="torch", version=TORCH, text=torch_of_few_lines(TORCH))
    (context / "Dockerfile").write_text(
        f"FROM {small_debian(tar)}\n"
        "RUN --mount=type=bind,target=/wheels python3 -m pip install --break-system-packages "
        "--no-index --no-cache-dir --root-user-action=ignore /wheels/*.whl\n"
    )
    name = f"stand-in-few-lines-of-torch:{TORCH}"
    docker("build", "--quiet", "--tag", name, context)
    shutil.rmtree(context)
    return name


def stand_in_intel_pytorch(tar: Path, *, registry: str, scratch: Path) -> str:
    """An image shaped like intel-extension-for-pytorch, pushed to a registry; its torch is a few lines."""
    base = stand_in_debian(tar)
    context = scratch / "intel"
    (context / "wheels").mkdir(parents=True)
    versions = {"torch": "2.8.0+xpu", "torchvision": "0.23.0+xpu", "intel-extension-for-pytorch": "2.8.10+xpu"}
    for name, version in versions.items():
        write_wheel(context / "wheels", name=name, version=version, text=STAND_IN_TORCH if name == "torch" else "")
    (context / "Dockerfile").write_text(
        f"FROM {base}\n"
        "RUN --mount=type=bind,source=wheels,target=/wheels python3 -m pip install --break-system-packages "
        "--no-index --no-cache-dir --root-user-action=ignore /wheels/*.whl\n"
    )
    name = f"{registry}/stand-in/intel-pytorch:2.8.10-xpu"
    docker("build", "--quiet", "--tag", name, context)
    docker("push", "--quiet", name)
    return name


STAND_IN_TORCH = '''
"""A stand-in for a torch that is built for Intel's GPUs: it answers what an image is asked for, and trains nothing."""

__version__ = "2.8.0+xpu"


class version:
    cuda = hip = None
    xpu = "20250101"


class cuda:
    @staticmethod
    def get_arch_list():
        return []
'''

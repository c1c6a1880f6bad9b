"""A conda channel of packages that run: this machine's own Python, a library and a program compiled here, pure Python.

Nothing is downloaded: what they are made of is what every machine with these tests has.
"""

from __future__ import annotations

import platform
import random
import subprocess
import sys
import sysconfig
from pathlib import Path

from tiny_channel import LONG, Tiny, write_channel, write_package

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
UNUSED = """
    EXTERNALLY-MANAGED __pycache__ dist-packages ensurepip idlelib lib2to3 site-packages test tests tkinter
"""
# What no test needs either: half of the files, which every build would link, compile and pack.
SKIPPED = """
    asyncio cgi.py concurrent curses dbm difflib.py distutils doctest.py ftplib.py html http imaplib.py mailbox.py
    multiprocessing nntplib.py optparse.py pdb.py pickletools.py plistlib.py pydoc.py pydoc_data _pydecimal.py
    smtplib.py sqlite3 statistics.py tarfile.py telnetlib.py tomllib turtle.py turtledemo unittest venv wsgiref xml
    xmlrpc zoneinfo
"""
ENCODINGS = {"__init__.py", "aliases.py", "ascii.py", "cp437.py", "idna.py", "latin_1.py", "utf_8.py", "utf_8_sig.py"}
LARGE = 51_000_000  # bytes: such a package has a layer of its own
# Debian's Python has its packages in folders of Debian's; this one is to be like every other.
SITE = "import site, sys\nsite.addsitedir(f'{sys.prefix}/lib/python%s/site-packages')\n" % MINOR  # noqa: UP031

LIBRARY = """
#include <stdio.h>
static const char prefix[] = "%s";
const char *greet_prefix(void) { return prefix; }
int greet_words(char *line, int size) {
    char path[4096];
    snprintf(path, sizeof path, "%%s/share/greet/words.txt", prefix);
    FILE *file = fopen(path, "r");
    return file && fgets(line, size, file) ? 0 : 1;
}
"""
PROGRAM = """
#include <stdio.h>
const char *greet_prefix(void);
int greet_words(char *line, int size);
int main(void) {
    char line[100];
    if (greet_words(line, sizeof line)) return 1;
    printf("%s from %s\\n", line, greet_prefix());
    return 0;
}
"""
PURE = """
import ctypes, os, sys

def main():
    library = ctypes.CDLL(os.path.join(sys.prefix, "lib", "libgreet.so"))
    library.greet_prefix.restype = ctypes.c_char_p
    print("{} in {}".format(library.greet_prefix().decode(), sys.prefix))
"""


def python(version: str = "", *, whole: bool = False) -> Tiny:
    """The Python that runs the tests, without what no test needs; `whole` is for benchmarks."""
    library, skipped = Path(sysconfig.get_path("stdlib")), {*UNUSED.split(), *("" if whole else SKIPPED).split()}
    files: dict[str, str | bytes] = {f"bin/python{MINOR}": Path(sys.executable).resolve().read_bytes()}
    for path in sorted(library.rglob("*")):
        parts = path.relative_to(library).parts
        kept = whole or parts[0] != "encodings" or parts[-1] in ENCODINGS
        if kept and not skipped.intersection(parts) and path.is_file() and not parts[0].startswith("config-"):
            files[f"lib/python{MINOR}/{path.relative_to(library)}"] = path.read_bytes()
    files[f"lib/python{MINOR}/sitecustomize.py"] = SITE
    own = (library / "sysconfig.py").read_text()
    files[f"lib/python{MINOR}/sysconfig.py"] = own.replace(
        "prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'"
    )
    return Tiny(
        name="python", version=version or platform.python_version(), build="0_cpython", depends=("libgreet", "__glibc"),
        files=files, links={"bin/python3": f"python{MINOR}", "bin/python": "python3"},
    )  # fmt: skip


def compiled(folder: Path, *, words: str = "hello", version: str = "1.0") -> tuple[Tiny, Tiny]:
    """A library with the prefix in it and a program that needs it, compiled by gcc."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libgreet.c").write_text(LIBRARY % LONG)
    (folder / "greet.c").write_text(PROGRAM)
    flags = ["gcc", "-O1", "-o"]
    subprocess.run([*flags, "libgreet.so", "-shared", "-fPIC", "libgreet.c"], cwd=folder, check=True)
    subprocess.run([*flags, "greet", "greet.c", "-L.", "-lgreet", "-Wl,-rpath,$ORIGIN/../lib"], cwd=folder, check=True)
    files: dict[str, str | bytes] = {
        "lib/libgreet.so": (folder / "libgreet.so").read_bytes(),
        "lib/libgreet.a": "an archive that no image needs",
        "share/greet/words.txt": words,
    }
    program: dict[str, str | bytes] = {
        "bin/greet": (folder / "greet").read_bytes(),
        "bin/greet-where": "#!/bin/sh\necho /PLACEHOLDER\n",
    }
    return (
        Tiny(name="libgreet", version=version, build="h0", depends=("__glibc >=2.17",), files=files),
        Tiny(name="greet", version=version, build="h0", depends=(f"libgreet =={version}",), files=program),
    )


def pure(version: str = "1.0") -> Tiny:
    """A pure Python package with a program, a script and the metadata that pip reads."""
    info = f"site-packages/greetpy-{version}.dist-info"
    return Tiny(
        name="greetpy", version=version, build="pyh_0", subdir="noarch", depends=("python >=3.8", "libgreet"),
        entry_points=("greet-py = greetpy:main",),
        files={
            "site-packages/greetpy/__init__.py": PURE,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: greetpy\nVersion: {version}\n",
            f"{info}/RECORD": "".join(
                f"{name},,\n"
                for name in (
                    "greetpy/__init__.py",
                    *(f"greetpy-{version}.dist-info/{name}" for name in ("METADATA", "RECORD", "INSTALLER")),
                )
            ),
            f"{info}/INSTALLER": "conda\n",
            "python-scripts/greet-script": "#!/PLACEHOLDER/bin/python\nimport greetpy\ngreetpy.main()\n",
        },
    )  # fmt: skip


def large(seed: int = 1) -> Tiny:
    """A package that is large enough for a layer of its own."""
    data = random.Random(seed).randbytes(LARGE)
    return Tiny(name="bulk", version=f"{seed}.0", build="h0", files={"share/bulk/data.bin": data})


def wide(*, packages: int, files: int, size: int = 400, version: str = "1.0", also: str = "") -> tuple[Tiny, ...]:
    """Many packages of many files of about a size, and one that needs them all: a stand-in for a large environment.

    Every third is pure Python; of the files of the others a tenth hold the prefix. `also` is a second version of the
    last one, which then is of any version.
    """
    made = [wide_part(number, files=files, size=size, version=version) for number in range(packages)]
    last = wide_part(packages - 1, files=files, size=size, version=also or version)
    exact = made[:-1] if also else made
    needs = (*(f"{one.name} =={version}" for one in exact), *((last.name,) if also else ()))
    return (*made, *((last,) if also else ()), Tiny(name="wide", build="h0", depends=needs))


def wide_part(number: int, *, files: int, size: int = 400, version: str = "1.0") -> Tiny:
    """One of them."""
    name, pure, content = f"wide-{number:03}", number % 3 == 1, dict[str, str | bytes]()
    rows = random.Random(f"{number} {version}")
    for index in range(files):
        line = rows.randbytes(size // 2).hex()
        if pure:
            lines = "".join(f"\n\ndef number_{at}(more):\n    return [more, {at}]\n" for at in range(size // 200))
            content[f"site-packages/wide_{number:03}/part_{index}.py"] = f"TEXT = '{line[:80]}'\n{lines}"
        else:
            prefix = "/PLACEHOLDER " if index % 10 == 1 else ""
            content[f"share/{name}/{index % 20}/{index}.txt"] = f"{prefix}{line}\n"
    return Tiny(
        name=name, version=version, build="pyh_0" if pure else "h0", subdir="noarch" if pure else "linux-64",
        depends=("python",), files=content,
    )  # fmt: skip


# Its script runs inside the image: the program that it calls is one of the environment's.
POST_LINK = "set -u\nmkdir -p $PREFIX/share/posty\ngreet >$PREFIX/share/posty/made.txt\n" + (
    "echo $PKG_NAME $PKG_VERSION $PKG_BUILDNUM >>$PREFIX/share/posty/made.txt\n"
)
SMALL = (
    Tiny(name="pip", version="24.0", build="pyh_0", subdir="noarch", depends=("python >=3.8",)),
    Tiny(
        name="posty", version="2.1", build="h7_3", number=3, depends=("greet",),
        files={"bin/.posty-post-link.sh": POST_LINK},
    ),
    Tiny(name="posty-more", version="9", build="h0", files={"share/posty/more.txt": "more\n"}),
    Tiny(name="twin-a", build="h0", files={"share/twin/which.txt": "a\n", "share/twin/a.txt": "a\n"}),
    Tiny(name="twin-b", build="h0", files={"share/twin/which.txt": "b\n", "share/twin/b.txt": "b\n"}),
    Tiny(name="wakes", build="h0", files={"etc/conda/activate.d/wakes.sh": "export WAKES=yes\n"}),
)  # fmt: skip


def arm() -> tuple[Tiny, ...]:
    """Packages for Arm whose programs are stand-ins: they are placed, and nothing here can run them."""
    own: dict[str, str | bytes] = {
        f"bin/python{MINOR}": b"stand-in \x7f" + LONG.encode() + b"\0end",
        f"lib/python{MINOR}/site.py": "WHERE = '/PLACEHOLDER'\n",
    }
    return (
        Tiny(
            name="python", version=platform.python_version(), build="0_cpython", subdir="linux-aarch64",
            depends=("libgreet",), files=own,
        ),
        Tiny(
            name="libgreet", build="h0", subdir="linux-aarch64",
            files={"lib/libgreet.so": b"stand-in " + LONG.encode() + b"\0"},
        ),
    )  # fmt: skip


def write(folder: Path) -> Path:
    """The whole channel, in both formats of packages."""
    return write_channel(folder, (python(), *compiled(folder.parent / "c"), pure(), large(), *SMALL, *arm()))


__all__ = [
    "LARGE",
    "MINOR",
    "Tiny",
    "compiled",
    "large",
    "pure",
    "python",
    "wide",
    "wide_part",
    "write",
    "write_channel",
    "write_package",
]

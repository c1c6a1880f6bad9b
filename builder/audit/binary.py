"""One ELF file: the GPU runtimes that it needs or opens, the device code in it, the glibc and Python it is for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..sif.bounded import BoundsError
from .content import AuditError, Content
from .device_code import (
    BUNDLE,
    FATBIN,
    PACKED,
    Code,
    read_bundles,
    read_code_object,
    read_cubin,
    read_fatbins,
    read_sycl,
)
from .elf import AMDGPU, CUDA, INTEL_GPU, MACHINES, NOBITS, Elf, Section, read_elf
from .vendor_rules import RuntimeLibrary, find_opened_names, find_runtime

FATBINS = (".nv_fatbin", "__nv_relfatbin")
BUNDLES = (".hip_fatbin",)
SYCL = BUNDLE.decode() + "sycl-"
TEXTS = (".rodata", ".rodata.str1.1", ".rodata.str1.8", ".data.rel.ro")
ALLOCATED, PROGBITS = 2, 1
LOADS = 16  # segments; a library has four or five
TIMES = 4  # the sizes of all sections, in sizes of the file
EXTENSION = re.compile(r"\.(?:cpython-3(?P<minor>\d{1,3})(?P<free>t?)|(?P<stable>abi3))[^/]*\.so")


@dataclass(frozen=True, kw_only=True)
class Binary:
    """What an ELF file says; `python` is 3.12, 3.13t or abi3 for an extension module of that name, else ""."""

    path: str
    size: int
    machine: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()  # looked for only where no GPU runtime is linked
    code: tuple[Code, ...] = ()
    glibc: str = ""
    defines: str = ""  # of libc.so.6: its own version
    python: str = ""
    fault: str = ""  # why it could not be read, in words
    linked: tuple[RuntimeLibrary, ...] = field(default=(), compare=False)  # what of `needed` is a GPU runtime

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


def read_binary(path: str, content: Content) -> Binary | None:
    """What a file says where it is an ELF file, else None; a damaged one has a `fault`. Raises OSError."""
    try:
        elf = read_elf(content)
    except BoundsError as error:
        return Binary(path=path, size=content.size, fault=str(error))
    if elf is None:
        return None
    linked = tuple(runtime for name in elf.needed if (runtime := find_runtime(name)) is not None)
    opened: tuple[str, ...] = ()
    fault, code = "", set[Code]()
    try:
        code = _find_code(elf, content)
        if not linked:
            opened = _find_opened(elf, content)
    except BoundsError as error:
        fault = str(error)
    return Binary(
        path=path, size=content.size, machine=MACHINES.get(elf.machine, ""), soname=elf.soname, needed=elf.needed,
        opened=opened, code=tuple(sorted(code)), glibc=elf.glibc, defines=elf.defines, python=_find_python(path),
        fault=fault, linked=linked,
    )  # fmt: skip


def _find_python(path: str) -> str:
    match = EXTENSION.search(path)
    if match is None:
        return ""
    return "abi3" if match["stable"] else f"3.{match['minor']}{match['free']}"


def _find_code(elf: Elf, content: Content) -> set[Code]:
    if elf.machine in (CUDA, AMDGPU, INTEL_GPU):
        return _find_own_code(elf)
    found: set[Code] = set()
    if not elf.sections:
        # Without section headers only what is loaded is known, and a container may begin anywhere in it.
        for offset, size in elf.loads[:LOADS]:
            found |= read_fatbins(content, offset=offset, size=size)
            found |= read_bundles(content, offset=offset, size=size)
        return found
    for section in _list_sections(elf, content):
        place = {"offset": section.offset, "size": section.size}
        if section.name.startswith(SYCL):
            found |= read_sycl(section.name, content, **place)
        elif section.name in FATBINS:
            found |= read_fatbins(content, **place)
        elif section.name in BUNDLES:
            found |= read_bundles(content, **place)
        elif section.kind == PROGBITS and section.flags & ALLOCATED:
            # A linker script may have given it any name.
            head = content.read(section.offset, len(BUNDLE))
            if head.startswith(FATBIN):
                found |= read_fatbins(content, **place)
            elif head.startswith((BUNDLE, PACKED)):
                found |= read_bundles(content, **place)
    return found


def _list_sections(elf: Elf, content: Content) -> Iterator[Section]:
    """Sections that are in the file; those of a sound one do not overlap."""
    left = TIMES * content.size
    for section in elf.sections:
        if section.kind == NOBITS or section.size < len(PACKED):
            continue
        left -= section.size
        if left < 0:
            raise AuditError("its sections overlap")
        yield section


def _find_own_code(elf: Elf) -> set[Code]:
    """The code of an ELF file that is device code itself."""
    if elf.machine == CUDA:
        code = read_cubin(flags=elf.flags, abi=elf.abi)
    elif elf.machine == AMDGPU:
        code = read_code_object(flags=elf.flags)
    else:
        code = Code(kind="sycl", target="intel_gpu")
    return {code} if code is not None else set()


def _find_opened(elf: Elf, content: Content) -> tuple[str, ...]:
    found = {
        name
        for section in _list_sections(elf, content)
        if section.name in TEXTS
        for name in find_opened_names(content, offset=section.offset, size=section.size)
    }
    return tuple(sorted(found))

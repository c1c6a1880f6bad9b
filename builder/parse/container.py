"""The `container:` section of a recipe: decoded by its dataclass, then checked value by value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from builder.model.recipe import Container
from builder.model.text import CONTROL, PATH, VARIABLE, exists, sanitize
from builder.model.variables import find_reserved_in_image
from builder.parse.copied_files import IGNORE, find_source_fault, is_kernel_path
from builder.parse.decoder import Decoder
from builder.parse.shell_text import find_open_part
from builder.parse.yaml import Listing, Table, Text, Value, describe

TAG = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
REFERENCE = re.compile(rf"(?:docker|oras|library)://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*{TAG}")
IMAGE_FILE = re.compile(r"(?:/|\./|\.\./)[A-Za-z0-9._/+@,=-]+|(?!-)[A-Za-z0-9._/+@,=-]+\.sif")
# Of one package, by its name: what begins with - + ! ~ or @, or ends with -, is a removal, a group or a tag. Names
# of rpm have capitals and underscores (libX11, libgcc_s1); Debian's and Alpine's programs know none and say so.
# Sources: dnf5-specs(7) (NAME-VERSION, globs, @group) and apk-world(5) ([!]name{@tag}{[<>~=]version}), read 2026-11-23;
# apt-get(8) ("install": NAME-, NAME+, NAME=VERSION). Of zypper(8) no page was found: its + - ! ~ stand before a name.
SYSTEM = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9+._-]*[A-Za-z0-9+])?(?:=[A-Za-z0-9](?:[A-Za-z0-9.+:_~-]*[A-Za-z0-9.~])?)?"
)
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
VERSION = re.compile(r"(?:python\s*)?[=<>~!]*\s*[0-9]+(?:\.[0-9*]+)*")
RESERVED = ("dev", "proc", "run", "sys", "tmp")  # what a runtime mounts over the image
# Of every base image: links to folders in most, which neither a file nor another folder may replace.
BASE_FOLDERS = {
    "/.singularity.d", "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr",
    *(f"/usr/{name}" for name in ("bin", "games", "include", "lib", "lib32", "lib64", "libexec", "libx32", "sbin")),
}  # fmt: skip
# A folder of the recipe is merged with these; a file would replace them.
SHARED_FOLDERS = {
    "/home", "/media", "/mnt", "/opt", "/opt/env", "/opt/recipe", "/root", "/srv", "/usr/share", "/usr/src", "/var",
    *(f"/usr/local{name}" for name in ("", "/bin", "/etc", "/games", "/include", "/lib", "/lib64", "/sbin", "/share")),
    *(f"/var/{name}" for name in ("cache", "lib", "local", "lock", "log", "mail", "opt", "run", "spool", "tmp")),
    *(f"/etc/{name}" for name in ("alternatives", "apt", "ld.so.conf.d", "profile.d", "ssl", "ssl/certs")),
}  # fmt: skip
BASE_FILES = {
    *(f"/etc/{name}" for name in (
        "passwd", "group", "shadow", "gshadow", "hostname", "hosts", "resolv.conf", "mtab", "os-release", "ld.so.cache",
    )),
    *(f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in ("sh", "bash", "env", "python3")),
    "/environment", "/singularity", "/usr/lib/os-release",
}  # fmt: skip
SETTINGS_FILES = {f"/etc/{name}" for name in ("ld.so.conf", "localtime", "nsswitch.conf", "profile")}  # a file may be
TEXTS = ("env", "labels")  # tables whose numbers and yes/no values are kept as they were written


def read_container(value: Value, *, decoder: Decoder, folder: Path) -> Container:
    """Read the section; the decoder collects its faults. `folder` is what relative sources of files are in."""
    if isinstance(value, Text) and value.kind == "null":
        return Container()
    tree = clean_tree(value, decoder=decoder)
    before = len(decoder.findings)
    container = decoder.decode_table(tree, Container, key="container")
    if isinstance(tree, Table):
        _check(tree, decoder=decoder, folder=folder)
    return container if container is not None and len(decoder.findings) == before else Container()


def stringify(value: Value) -> Value:
    """Return a table whose numbers, dates and yes/no values are the text that the user wrote (3.10 stays 3.10)."""
    if isinstance(value, Table):
        return Table(entries=tuple((name, stringify(item)) for name, item in value.entries), line=value.line)
    if isinstance(value, Text) and value.kind in ("number", "bool"):
        return Text(raw=value.raw, line=value.line)
    return value


def clean_tree(value: Value, *, decoder: Decoder) -> Value:
    """Remove keys without a value; what is text by its position is kept as text."""
    if not isinstance(value, Table):
        return value
    entries: list[tuple[Text, Value]] = []
    for name, item in value.entries:
        if isinstance(item, Text) and item.kind == "null":
            continue
        if name.raw == "python" and isinstance(item, Text) and VERSION.fullmatch(item.raw):
            message = f"'python' says where packages go, not which Python ('{sanitize(item.raw)}')"
            version = item.raw.removeprefix("python").strip().lstrip("=<>!~ ")
            fix = f"write the version below dependencies: '- python={version}'; here: auto, base or env"
            decoder.add_fault("container-python", message, line=item.line, key="container.python", fix=fix)
            continue
        if name.raw == "gpu" and _check_vendor(item, decoder=decoder):
            continue
        entries.append((name, stringify(item) if name.raw in TEXTS else item))
    return Table(entries=tuple(entries), line=value.line)


# What people write who think of the software -> the vendor.
VENDORS = {
    **dict.fromkeys(("amd", "rocm", "hip"), "amd"),
    **dict.fromkeys(("nvidia", "cuda"), "nvidia"),
    **dict.fromkeys(("intel", "xpu", "oneapi"), "intel"),
    **dict.fromkeys(("cpu", "none"), "cpu"),
}


def _check_vendor(value: Value, *, decoder: Decoder) -> bool:
    """Report a vendor that is not a list, or not a known name; the fix is the line to write."""
    words = value.items if isinstance(value, Listing) else (value,)
    meant = [VENDORS.get(word.raw.lower(), "") if isinstance(word, Text) else "" for word in words]
    plain = [word.raw for word in words if isinstance(word, Text)]
    if not words or not all(meant) or (isinstance(value, Listing) and plain == meant):
        return False
    message = f"'gpu' is a list of vendors (amd, nvidia, intel, cpu), found {describe(words[0])}"
    fix = f"write gpu: [{', '.join(dict.fromkeys(meant))}]"
    right = f"[{', '.join(dict.fromkeys(meant))}]"
    edit = (f"[{', '.join(plain)}]", right) if isinstance(value, Listing) else (f"gpu: {plain[0]}", f"gpu: {right}")
    decoder.add_fault("container-gpu", message, line=value.line, key="container.gpu", fix=fix, edit=edit)
    return True


STRING_LIMIT = 128 * 1024  # bytes of NAME=VALUE with its end: MAX_ARG_STRLEN of Linux (execve(2))
VARIABLES_LIMIT = 1024 * 1024  # bytes: with the arguments they have two MiB where the stack may have eight (execve(2))


def check_variables(value: Value | None, *, decoder: Decoder, key: str) -> None:
    """Report invalid names and names with an effect elsewhere, and values with several lines or of excessive length."""
    whole = 0
    for name, item in value.entries if isinstance(value, Table) else ():
        place = f"{key}.{sanitize(name.raw)}"
        if not VARIABLE.fullmatch(name.raw):
            message = f"'{sanitize(name.raw)}' is not a name that a variable can have"
            fix = "use letters, digits and _, no digit first"
            decoder.add_fault("variable-name", message, line=name.line, key=place, fix=fix)
        elif (owner := find_reserved_in_image(name.raw)) is not None:
            message = f"'{name.raw}' cannot be a variable of an image: {owner.why}"
            decoder.add_fault("variable-name", message, line=name.line, key=place, fix=owner.fix)
        if not isinstance(item, Text):
            continue
        _check_line(item, decoder=decoder, key=place)
        size = len(f"{name.raw}={item.raw}".encode(errors="surrogatepass")) + 1
        whole += size
        if size > STRING_LIMIT or whole - size <= VARIABLES_LIMIT < whole:
            one = size > STRING_LIMIT
            limit = STRING_LIMIT if one else VARIABLES_LIMIT
            what = "the variable takes" if one else "the variables together take"
            message = f"{what} more than {limit >> 10} KiB, and no program can be started so"
            decoder.add_fault("value-long", message, line=item.line, key=place, fix="put it into a file, and name that")


def _check_line(item: Text, *, decoder: Decoder, key: str) -> None:
    if CONTROL.search(item.raw):
        what = "more than one line" if "\n" in item.raw else "a control character"
        fix = "write it in one line" if "\n" in item.raw else "remove it"
        decoder.add_fault("value-line", f"the value holds {what}", line=item.line, key=key, fix=fix)


def _list_items(tree: Table, name: str) -> Iterator[tuple[str, Text]]:
    """Return every text of a list of the section, with its key path."""
    value = tree.get(name)
    if isinstance(value, Listing):
        for index, item in enumerate(value.items):
            if isinstance(item, Text):
                yield f"container.{name}[{index}]", item


def _check(tree: Table, *, decoder: Decoder, folder: Path) -> None:
    check_variables(tree.get("env"), decoder=decoder, key="container.env")
    _check_base(tree.get("base"), decoder=decoder)
    for key, item in _list_items(tree, "system"):
        if not SYSTEM.fullmatch(item.raw):
            message = f"'{sanitize(item.raw)}' is not the name of a distribution package"
            fix = "write one package an item, as 'libgl1' or 'libgl1=1.7.0-1'"
            decoder.add_fault("container-system", message, line=item.line, key=key, fix=fix)
    for key, item in _list_items(tree, "run"):
        if not item.raw.strip():
            decoder.add_fault("container-run", "a command is empty", line=item.line, key=key, fix="remove it")
        elif CONTROL.search(re.sub(r"[\n\t]", "", item.raw)):
            decoder.add_fault(
                "container-run", "a command holds a control character", line=item.line, key=key, fix="remove it"
            )
        elif left := find_open_part(item.raw):
            message = f"the command ends with {sanitize(left)} open: it would take in the command after it"
            fix = "complete it; one item may have several lines, after '- |'"
            decoder.add_fault("container-run", message, line=item.line, key=key, fix=fix)
    _check_labels(tree.get("labels"), decoder=decoder)
    _check_files(tree.get("files"), decoder=decoder, folder=folder)
    _check_imports(tree.get("smoke"), decoder=decoder)


def _check_base(value: Value | None, *, decoder: Decoder) -> None:
    if not isinstance(value, Text) or REFERENCE.fullmatch(value.raw) or IMAGE_FILE.fullmatch(value.raw):
        return
    message = f"'{sanitize(value.raw)}' does not name an image"
    fix = "write docker://NAME:TAG, oras://NAME:TAG, library://NAME:TAG or the path of a .sif file"
    if REFERENCE.fullmatch(f"docker://{value.raw}"):
        message = f"'{sanitize(value.raw)}' may be a file or an image of a registry"
        fix = f"write docker://{value.raw}"
    decoder.add_fault("container-base", message, line=value.line, key="container.base", fix=fix)


def _check_labels(value: Value | None, *, decoder: Decoder) -> None:
    for name, item in value.entries if isinstance(value, Table) else ():
        key = f"container.labels.{sanitize(name.raw)}"
        if not LABEL.fullmatch(name.raw):
            fix = "use letters, digits and ._/-, a letter or digit first"
            message = f"'{sanitize(name.raw)}' is not a name that a label can have"
            decoder.add_fault("label-name", message, line=name.line, key=key, fix=fix)
        if isinstance(item, Text):
            _check_line(item, decoder=decoder, key=key)


def _check_files(value: Value | None, *, decoder: Decoder, folder: Path) -> None:
    targets: dict[str, str] = {}
    for name, item in value.entries if isinstance(value, Table) else ():
        key = f"container.files.{sanitize(name.raw)}"
        fault = _find_source_fault(name.raw, folder=folder)
        if fault is not None:
            decoder.add_fault("file-source", fault[0], line=name.line, key=key, fix=fault[1])
        if not isinstance(item, Text):
            continue
        target = item.raw.rstrip("/")
        fault = _find_target_fault(item.raw) or _find_base_fault(target, is_folder=(folder / name.raw).is_dir())
        if fault is None and target in targets:
            fault = f"'{item.raw}' is also where '{targets[target]}' goes", "give each its own place"
        if fault is not None:
            decoder.add_fault("file-target", fault[0], line=item.line, key=key, fix=fault[1])
        targets[target] = sanitize(name.raw)


def _find_source_fault(source: str, *, folder: Path) -> tuple[str, str] | None:
    if not PATH.fullmatch(source):
        return f"the path '{sanitize(source)}' has characters beyond letters, digits and ._/+@,=~-", "rename it"
    if source.startswith("~"):
        return f"'{source}' depends on who builds", "write the path from the recipe's folder, or the full one"
    if not exists(folder / source):
        return f"there is no '{source}'", "check the path; it is read from the recipe's folder"
    if is_kernel_path(folder / source):
        message = f"'{sanitize(source)}' is a part of this machine and its processes, and no file"
        return message, "copy what is needed of it"
    if not ((folder / source).is_file() or (folder / source).is_dir()):
        return f"'{source}' is neither a file nor a folder", "leave it out, or copy its content into a file"
    fault = find_source_fault(source, folder=folder)
    if fault:
        return f"'{source}' {fault}", f"leave it out, or write '!{Path(source).name}' into {IGNORE} next to the recipe"
    return None


def _find_target_fault(target: str) -> tuple[str, str] | None:
    parts = target.strip("/").split("/")
    if not PATH.fullmatch(target) or "~" in target:
        return f"the path '{sanitize(target)}' has characters beyond letters, digits and ._/+@,=-", "choose another"
    if not target.startswith("/"):
        return f"'{target}' is not a full path inside the image", f"begin with '/': /{target}"
    if ".." in parts:
        return f"'{target}' goes up with '..'", "write the full path"
    if parts == [""]:
        return "'/' is the whole image", "name a folder in it, e.g. /opt/src"
    if parts[0] in RESERVED:
        message = f"'/{parts[0]}' belongs to the runtime: what the image holds there cannot be seen"
        return message, "choose a folder such as /opt/src"
    return None


def _find_base_fault(target: str, *, is_folder: bool) -> tuple[str, str] | None:
    """What is wrong with a target that every base image has itself."""
    plain = re.sub(r"/(?:\./|/)*", "/", target).removesuffix("/.")
    if plain in BASE_FOLDERS:
        return f"'{plain}' is a folder of the base image, which this would replace", "choose a place such as /opt/NAME"
    if plain in SHARED_FOLDERS and not is_folder:
        return f"'{plain}' is a folder of the base image, which a file would replace", f"write {plain}/NAME"
    above = {str(path) for path in PurePosixPath(plain).parents}
    kept = BASE_FILES | (SETTINGS_FILES if is_folder else set())
    broken = sorted(({plain} & kept) | (above & (BASE_FILES | SETTINGS_FILES)))
    if broken:
        message = f"'{broken[0]}' is a file of the base image, which this would replace"
        return message, "choose a place such as /opt/NAME"
    return None


def _check_imports(value: Value | None, *, decoder: Decoder) -> None:
    imports = value.get("imports") if isinstance(value, Table) else None
    for index, item in enumerate(imports.items if isinstance(imports, Listing) else ()):
        if isinstance(item, Text) and not MODULE.fullmatch(item.raw):
            message = f"'{sanitize(item.raw)}' is not a module that Python can import"
            fix = "write the name that follows 'import', e.g. 'torch' or 'sklearn.svm'"
            key = f"container.smoke.imports[{index}]"
            decoder.add_fault("smoke-import", message, line=item.line, key=key, fix=fix)

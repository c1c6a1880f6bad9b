"""recipe explain: print the page of a finding's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

import click

from builder.cli.check_formats import list_codes, read_page
from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit_document, format_option
from builder.model.finding import ConfigError, Finding
from builder.model.variables import split_words

# A code as a message shows it: `error[torch-build]:`.
SHOWN = re.compile(r"(?:(?:error|warning|note)?\[)?(?P<code>[\w-]+)\]?:?", re.IGNORECASE)
LEVEL = re.compile(r" Level: (error|warning|note)\.$", re.MULTILINE)
WITHOUT_PAGE = "This code has no page of its own: its message says what is wrong, where, and how to correct it."
ITEM = re.compile(r"(?:-|\d+\.) ")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@click.command("explain")
@click.argument("code")
@format_option
@add_plain_verbosity
def run_command(code: str, shape: str) -> None:
    """Print the page of the finding CODE: what it means, and an example with its fix; of a fault of form its class.

    CODE is the word in brackets after `error`, `warning` or `note`.
    """
    name = _name(code)
    page = read_page(name) or f"# {name}\n\n{find_class(name)}\n\n{WITHOUT_PAGE}\n"
    if shape == "json":
        level = LEVEL.search(page)
        title = page.splitlines()[2]
        fields = {"code": name, "level": level and level[1], "title": LEVEL.sub("", title), "page": page}
        emit_document(fields)
        return
    for line in format_page(page):
        echo(line, hang=_find_hang(line))


def _name(word: str) -> str:
    """Find the code that the user means; raises ConfigError with the nearest codes."""
    found = SHOWN.fullmatch(word.strip())
    name = found["code"].lower() if found else word
    known = (*list_codes(), *list_classed_codes())
    if name in known:
        return name
    parts = [code for code in known if name in code.split("-")]
    if not parts and (about := _find_about(name)):
        fix = f"findings that speak of it: {' or '.join(f'`recipe explain {code}`' for code in about)}"
        message = f"there is no code '{word}', and a package has this name"
        raise ConfigError(Finding(code="code-unknown", message=message, fix=fix))
    near = sorted(parts, key=lambda code: not code.startswith(name))[:4] or get_close_matches(
        name, known, n=3, cutoff=0.5
    )
    listed = " or ".join(f"`recipe explain {code}`" for code in near)
    fix = f"did you mean {listed}?" if near else "copy the word in brackets of a finding: error[torch-build]"
    raise ConfigError(Finding(code="code-unknown", message=f"there is no code '{word}'", fix=fix))


def _find_about(name: str) -> list[str]:
    """Find the codes whose pages name a package most often, four at most; none for a word that is no package."""
    from builder.resolve.checks.spelling import is_known_package  # for messages alone

    word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", re.IGNORECASE)
    pinned = re.compile(rf"(?<![\w.-]){re.escape(name)}==?\d")
    pages = {code: read_page(code) or "" for code in list_codes()}
    if not is_known_package(name) and not any(map(pinned.search, pages.values())):
        return []
    counts = {code: len(word.findall(page)) for code, page in pages.items()}
    found = sorted((code for code in counts if counts[code]), key=lambda code: (-counts[code], code))
    return found[:4]


def _find_hang(line: str) -> int | None:
    """Where the next lines of one begin: of a paragraph flush, of an item below its text, of code as echo has it."""
    if line.startswith((" ", "|")):
        return None
    marked = ITEM.match(line)
    return marked.end() if marked else 0


def format_page(page: str) -> Iterator[str]:
    """Yield the lines of a page without Markdown: one line for each paragraph, code indented."""
    paragraph: list[str] = []
    fenced = False
    for line in [*page.splitlines(), ""]:
        if paragraph and (fenced or not line or line.startswith(("```", "#", "|")) or ITEM.match(line)):
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            yield f"    {line}".rstrip()
        elif not line or line.startswith(("#", "|")):
            yield LINK.sub(r"\1", line.lstrip("# "))
        else:
            paragraph.append(LINK.sub(r"\1", line.strip()))


@dataclass(frozen=True, kw_only=True)
class CodeClass:
    """Codes that mean the same kind of fault; `text` is a sentence about it."""

    text: str
    codes: frozenset[str]


CLASSES = (
    CodeClass(
        text="A file does not have the form that recipe reads: see the line and the fix of the message.",
        codes=split_words(
            "bind-at-build bind-source conda-bracket conda-channel conda-character conda-colon conda-conflict "
            "conda-empty conda-field conda-file conda-long conda-name conda-pip conda-twice conda-url "
            "conda-version conda-words container-base container-gpu container-python container-run "
            "container-system file-binary file-character file-encoding file-folder file-large file-missing "
            "file-source file-special file-target file-unreadable hash hash-none json-deep json-syntax "
            "label-name missing-key overwrite-refused pip-character pip-circle pip-depth pip-equals pip-flat "
            "pip-form pip-long pip-marker pip-option pip-path pip-python pip-quote pip-remote pip-second "
            "pip-twice pip-value pixi-activation pixi-environment pixi-feature pixi-index pixi-package "
            "pixi-setting pixi-system pixi-target project-dynamic project-extra project-group project-poetry "
            "project-python project-table pylock-form pylock-hash pylock-source pylock-version "
            "recipe-empty recipe-format recipe-name recipe-shape secret "
            "table-empty toml-bomb toml-duplicate toml-syntax unknown-key url-form url-scheme url-secret "
            "url-variable uv-index uv-lock uv-setting uv-source value-line value-long variable-name wrong-choice "
            "wrong-type yaml-alias yaml-bomb yaml-character yaml-deep yaml-documents yaml-duplicate yaml-key "
            "yaml-quote yaml-syntax yaml-tab"
        ),
    ),
    CodeClass(
        text="The file of a site is faulty, or no site has that name: `recipe sites` lists them.",
        codes=split_words(
            "site-backend site-base site-cores site-date site-empty site-extends site-gpu-option site-job "
            "site-mask site-name site-number site-option site-port site-proxy site-rocm site-secret site-source "
            "site-unknown site-unsafe site-variable site-version sites-folder"
        ),
    ),
    CodeClass(
        text="No versions, or no files, of some package fit the Python, the C library and the processor of the "
        "site's image.",
        codes=split_words(
            "lock-conda lock-folder lock-glibc lock-no-hash lock-pip lock-provided lock-python lock-spec"
        ),
    ),
    CodeClass(
        text="A lock does not match its file, its base image or an index: `recipe lock SITE ENV` makes it again.",
        codes=split_words("lock-altered lock-base lock-commit lock-faulty lock-site"),
    ),
    CodeClass(
        text="A lock could not be made or written here: the packages may be right, and the same line may work "
        "later or elsewhere.",
        codes=split_words("lock-channel lock-network lock-solver lock-stopped lock-uv lock-write"),
    ),
    CodeClass(
        text="The form of another tool cannot say all of a lock: use another one.",
        codes=split_words("lock-form"),
    ),
    CodeClass(
        text="An image, an archive, a folder or its documents cannot be read, do not match each other, or cannot get "
        "wrappers or a kernel.",
        codes=split_words(
            "archive-path audit-unreadable base-reference base-unreadable claims "
            "gpu-audit image-foreign image-missing image-site image-unreadable no-ipykernel "
            "wrap-done wrap-missing wrap-path wrap-python"
        ),
    ),
    CodeClass(
        text="What was measured cannot be read: name a report.json, a plan folder or an image with its plan folder.",
        codes=split_words(
            "no-plan plan-faulty plan-file plan-path report-damaged report-empty report-foreign report-image "
            "report-large report-missing report-unreadable"
        ),
    ),
    CodeClass(
        text="The command line or a variable of the environment is faulty: see its `--help`.",
        codes=split_words(
            "base-missing code-unknown command-unknown fetch-backend ignore init-exists init-from "
            "init-unknown input-option nothing-exact option-value path-missing path-special stdin unknown-step usage "
            "variable"
        ),
    ),
    CodeClass(
        text="Your file of settings, or the system's, is faulty or is not used: `recipe config` shows what is read.",
        codes=split_words("config-empty config-foreign config-key config-login config-name config-value"),
    ),
    CodeClass(
        text="The output, or the folder of a plan, cannot be written, or something there must not be replaced.",
        codes=split_words(
            "build-running copy-kind copy-missing copy-unreadable folder-edited folder-foreign folder-link "
            "folder-taken folder-unwritable kits-file output-elsewhere output-exists output-folder output-input "
            "output-kind output-name path-refused output-rights output-unwritable sign-folder sign-job "
            "update-refused update-unknown verify-folder verify-job"
        ),
    ),
    CodeClass(
        text="This is a fault of recipe itself: please report it with the lines that were printed.",
        codes=split_words("fault"),
    ),
    CodeClass(
        text="This machine lacks something, or is not a machine of the site: see `recipe doctor SITE`.",
        codes=split_words(
            "architecture-unknown base-glibc base-processor cache-folder cache-in-use login-node no-key no-log "
            "no-memory no-program no-scheduler no-slurm no-space no-tmpdir not-signed not-started "
            "not-this-site other-processor smoke-cpu"
        ),
    ),
    CodeClass(
        text="Slurm refused, ended or lost a job, or jobs still wait or run: see `recipe status`.",
        codes=split_words(
            "job-account job-array job-cancelled job-dependency job-launch job-limit job-lost job-no-record "
            "job-node job-partition job-preempted job-qos job-refused job-signal job-size job-time job-time-limit "
            "jobs-file jobs-open jobs-running no-jobs step-no-job"
        ),
    ),
    CodeClass(
        text="A package could not be installed: the log of the step has the words of pip, uv or conda. `recipe "
        "lock SITE ENV` asks the indexes without a build.",
        codes=split_words(
            "base-damaged build-needs-module conflict damaged-wheel licence multiple-conda no-compiler "
            "no-conda-package no-git no-mpi no-package no-wheel prompt"
        ),
    ),
    CodeClass(
        text="A server was not reached, or refused: the same line works once it answers, and what was fetched is kept.",
        codes=split_words("no-image no-network not-fetched proxy rate-limit tls unauthorized"),
    ),
    CodeClass(
        text="This machine or its container engine stopped the build: `recipe doctor` shows its engines, disks and "
        "rights.",
        codes=split_words(
            "docker-buildx docker-down docker-rights file-size no-fuse no-proot no-rights no-space-image "
            "no-space-output no-subuid no-user-namespaces one-user-id open-files quota read-only wrapper-on-path"
        ),
    ),
    CodeClass(
        text="A step ended, or was ended, before its image was in place: the last lines of its log in the plan "
        "folder say where.",
        codes=split_words(
            "base-replaced image-kept interrupted no-image-made no-product not-published own-script step-failed "
            "step-timeout time-limit"
        ),
    ),
    CodeClass(
        text="The image was built, and is not as it has to be: `recipe report` shows each check that failed.",
        codes=split_words("not-as-planned not-the-same smoke-failed smoke-import"),
    ),
)


def find_class(code: str) -> str:
    """The text of a code's class, "" for an unknown code."""
    return next((one.text for one in CLASSES if code in one.codes), "")


def list_classed_codes() -> tuple[str, ...]:
    """Every code in a class, sorted."""
    return tuple(sorted(code for one in CLASSES for code in one.codes))

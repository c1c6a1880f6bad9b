"""Codes of findings that have no page of their own, in classes: `recipe explain` prints the text of the class."""

from __future__ import annotations

from dataclasses import dataclass

from builder.model.variables import split_words


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
            "file-source file-special file-target file-unreadable hash label-name missing-key overwrite-refused "
            "pip-character pip-circle pip-depth pip-equals pip-flat pip-form pip-hash pip-long pip-marker "
            "pip-option pip-path pip-python pip-quote pip-remote pip-second pip-twice pip-value recipe-empty "
            "recipe-format recipe-name recipe-shape secret table-empty unknown-key url-form url-scheme url-secret "
            "url-variable value-line value-long variable-name wrong-choice wrong-type yaml-alias yaml-bomb "
            "yaml-character yaml-deep yaml-documents yaml-duplicate yaml-key yaml-quote yaml-syntax yaml-tab"
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
        text="A lock cannot be made, read or used: follow the fix of the message, then run `recipe lock` again.",
        codes=split_words(
            "lock-altered lock-base lock-channel lock-commit lock-conda lock-faulty lock-folder lock-glibc "
            "lock-hash lock-network lock-no-file lock-no-hash lock-pip lock-provided lock-python lock-site "
            "lock-solver lock-spec lock-stopped lock-uv lock-write"
        ),
    ),
    CodeClass(
        text="An image, an archive or its documents cannot be read, or do not match each other.",
        codes=split_words(
            "archive-path audit-unreadable base-reference base-unreadable claims "
            "gpu-audit image-foreign image-missing image-unreadable"
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
            "base-missing code-unknown command-unknown fetch-backend ignore init-exists init-unknown "
            "nothing-exact option-value path-missing path-special unknown-step usage variable"
        ),
    ),
    CodeClass(
        text="The output, or the folder of a plan, cannot be written, or something there must not be replaced.",
        codes=split_words(
            "build-running copy-kind copy-missing copy-unreadable folder-edited folder-foreign folder-link "
            "folder-taken folder-unwritable kits-file output-elsewhere output-exists output-folder output-input "
            "output-kind output-name path-refused output-rights output-unwritable sign-folder sign-job "
            "verify-folder verify-job"
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
            "not-this-site smoke-cpu"
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
        text="A step of the build failed: the message says why as far as its log tells, and names the log.",
        codes=split_words(
            "base-replaced build-needs-module conflict docker-buildx docker-down docker-rights file-size image-kept "
            "interrupted licence multiple-conda no-compiler no-conda-package no-fuse no-image no-image-made "
            "no-network no-package no-product no-rights no-space-image no-space-output no-subuid "
            "no-user-namespaces no-wheel not-as-planned not-fetched not-published not-the-same one-user-id "
            "open-files own-script prompt proxy quota rate-limit read-only smoke-failed smoke-import step-failed "
            "step-timeout time-limit tls unauthorized wrapper-on-path"
        ),
    ),
)


def find_class(code: str) -> str:
    """The text of a code's class, "" for an unknown code."""
    return next((one.text for one in CLASSES if code in one.codes), "")


def list_classed_codes() -> tuple[str, ...]:
    """Every code in a class, sorted."""
    return tuple(sorted(code for one in CLASSES for code in one.codes))

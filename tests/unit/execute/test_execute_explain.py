"""Failures of engines, in the engines' own words."""

from __future__ import annotations

import re

import pytest
from support.rows import rows

from builder.execute.diagnose import CAUSES, UNKNOWN, explain, find_error_line
from builder.model.plan import Step
from builder.system.failures.installers import PACKAGES
from builder.system.step_output import Event

STEP = Step(name="build", kind="build", why="", script="1-build.sh")

# Printed by the programs themselves here, or in the threads and sources that builder/system/failures names; hosts and
# paths are changed.
PIP_TORCH = """\
        File "/tmp/env/site-packages/setuptools/build_meta.py", line 317, in run_setup
          exec(code, locals())  # noqa: S102 # exec is intentional here
        File "<string>", line 1, in <module>
      ModuleNotFoundError: No module named 'torch'
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
ERROR: Failed to build 'file:///src/needtorch' when getting requirements to build wheel"""
UV_TORCH = """\
error: The build backend returned an error
  cause: Call to `setuptools.build_meta:__legacy__.get_requires_for_build_wheel` failed (exit status: 1)

         [stderr]
         Traceback (most recent call last):
           File "<string>", line 1, in <module>
         ModuleNotFoundError: No module named 'torch'"""
PIP_DNS = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolutionError("HTTPSConnection(\
host='nohost.invalid', port=443): Failed to resolve 'nohost.invalid'")': /simple/six/
ERROR: Could not find a version that satisfies the requirement six (from versions: none)
ERROR: No matching distribution found for six"""
PIP_TLS = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: \
CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)'))': /simple/six/
ERROR: Could not find a version that satisfies the requirement six (from versions: none)
ERROR: No matching distribution found for six"""
PIP_CONFLICT = """\
ERROR: Cannot install six==1.15.0 and six==1.16.0 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested six==1.16.0
    The user requested six==1.15.0

Additionally, some packages in these conflicts have no matching distributions available for your environment:
    six

ERROR: ResolutionImpossible: for help visit https://pip.example/topics/dependency-resolution/"""
PIP_HASH = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.
        Expected sha256 0000
             Got        8abb"""
UV_HASH = """\
error: Failed to download `six==1.16.0`
  cause: Hash mismatch for `six==1.16.0`

         Expected:
           sha256:0000"""
UV_HASHES = f"""{UV_HASH[:-4]}{"0" * 64}

         Computed:
           sha256:{"8" * 64}"""
UV_NO_HASH = "error: Hash-checking is required, but no trusted hash was provided for: `mdurl`"
UV_DNS = """\
error: Request failed after 3 retries in 11.1s
  cause: Failed to fetch: http://nohost.invalid/simple/six/
  cause: error sending request for url (http://nohost.invalid/simple/six/)
  cause: client error (Connect)
  cause: dns error
  cause: failed to lookup address information: Name or service not known"""
UV_PROXY = """\
  cause: error sending request for url (https://index.example/simple/six/)
  cause: client error (Connect)
  cause: tunnel error: failed to create underlying connection
  cause: tcp connect error
  cause: Connection refused (os error 111)"""
UV_TLS = """\
error: Failed to fetch: https://localhost:8443/simple/six/
  cause: error sending request for url (https://localhost:8443/simple/six/)
  cause: client error (Connect)
  cause: invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))"""
UV_GIT = """error: Git operation failed
  cause: Git executable not found. Ensure that Git is installed and available."""
UV_WHEEL = """\
error: No solution found when resolving dependencies
  cause: Because tensorflow==2.12.0 has no wheels with a matching Python ABI tag (e.g., `cp313`) and you require \
tensorflow==2.12.0, we can conclude that your requirements are unsatisfiable."""
UV_VERSION = """\
error: No solution found when resolving dependencies
  cause: Because there is no version of six==99.0 and you require six==99.0, we can conclude that your \
requirements are unsatisfiable."""
UV_UNKNOWN = """\
error: No solution found when resolving dependencies
  cause: Because no-such-package was not found in the package registry and you require no-such-package==1, we can \
conclude that your requirements are unsatisfiable."""
UV_CONFLICT = """\
error: No solution found when resolving dependencies
  cause: Because you require six==1.16.0 and six==1.15.0, we can conclude that your requirements are unsatisfiable."""
UV_SPACE = """\
error: Failed to install: numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (numpy==2.4.6)
  cause: failed to copy file from /tmp/a to /small/b: No space left on device (os error 28)"""
PIP_GCC = """\
      building 'x' extension
      gcc -fPIC -I/usr/include/python3.11 -c x.c -o build/x.o
      error: command 'gcc' failed: No such file or directory
      [end of output]"""
UV_GCC = """\
         building 'x' extension
         [stderr]
         error: [Errno 2] No such file or directory: '/usr/bin/x86_64-linux-gnu-gcc'"""
SQUASH = """\
Write failed because No space left on device
FATAL ERROR: Failed to write to output filesystem
Parallel mksquashfs: Using 2 processors"""
BIND = (
    "FATAL:   container creation failed: mount hook function failure: mount /opt/cray->/opt/cray error: "
    "while mounting /opt/cray: destination /opt/cray doesn't exist in container"
)
MAMBA = """\
error    libmamba Could not solve for environment specs
    The following packages are incompatible
    └─ quartz =1 * does not exist (perhaps a typo or a missing channel).
critical libmamba Could not solve for environment specs"""
COTAINR_OVERWRITE = "Cotainr:-: You have chosen not to overwrite /scratch/x.sif. Exiting."

KNOWN = [
    (
        "slurmstepd: error: *** JOB 1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***",
        "time-limit",
        "time",
    ),
    (
        "FATAL:   While performing build: while creating SIF: while creating container: no space left on device",
        "no-space-output",
        "the image",
    ),
    ("ERROR  : Failed to create container process: No space left on device", "no-user-namespaces", "namespaces"),
    (
        "FATAL:   Building from a definition file unprivileged requires either a suid installation or "
        "unprivileged user namespaces",
        "no-user-namespaces",
        "namespaces",
    ),
    ("FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid for me", "no-subuid", "/etc/subuid"),
    ("E: setgroups 65534 failed - setgroups (1: Operation not permitted)", "one-user-id", "change users"),
    ("cp: error writing 'x': Disk quota exceeded", "quota", "quota"),
    (SQUASH, "no-space-image", "packed"),
    (UV_SPACE, "no-space", "space"),
    ("OSError: [Errno 28] No space left on device: '/tmp/x'", "no-space", "space"),
    ("tar: small/a.tar: Wrote only 8192 of 10240 bytes", "no-space", "space"),
    ("bash: line 1:  7098 Killed                  python3 -c x", "no-memory", "memory"),
    ("MemoryError", "no-memory", "memory"),
    ("memory allocation of 1931616 bytes failed", "no-memory", "memory"),
    ("called `Result::unwrap()` on an `Err` value: Os { code: 11, kind: WouldBlock }", "no-memory", "memory"),
    ("OS can't spawn worker thread: Resource temporarily unavailable (os error 11)", "no-memory", "memory"),
    ("error: failed to write to file: File too large (os error 27)", "file-size", "largest size"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", "no-memory", "memory"),
    ("FATAL:   While performing build: while running engine: exit status 137", "no-memory", "memory"),
    ("touch: cannot touch 'ro/x': Read-only file system", "read-only", "read-only"),
    (BIND, "bind-at-build", "'/opt/cray'"),
    ("FATAL: mount /a->/b error: while mounting /a: mount source /a doesn't exist", "bind-source", "'/a'"),
    ("squashfuse_ll exited with status 1: fuse: device not found, try 'modprobe fuse' first", "no-fuse", "FUSE"),
    (
        "FATAL:   --remote, --fakeroot, or the proot command are required to build this source as a non-root user",
        "no-proot",
        "no proot on PATH",
    ),
    (
        "RuntimeError: Multiple Conda installs interfere. We risk destroying the Conda install in /opt/x. Aborting!",
        "multiple-conda",
        "conda",
    ),
    ("CondaInstall:-: You have not accepted the Miniforge installer license. Aborting!", "licence", "licence"),
    (
        "recipe: error: licence of Miniforge is not accepted: give --accept-licenses, or set RECIPE_ACCEPT_LICENSES",
        "licence",
        "licence",
    ),
    (
        "in _display_miniforge_license_for_acceptance\ntermios.error: (25, 'Inappropriate ioctl for device')",
        "licence",
        "licence",
    ),
    (
        "[ ERROR ] Remove ['/projappl/x/env'] from PATH before running the tool, otherwise the tool might not work",
        "wrapper-on-path",
        "/projappl/x/env",
    ),
    (COTAINR_OVERWRITE, "overwrite-refused", "'/scratch/x.sif'"),
    ("EOFError: EOF when reading a line", "prompt", "question"),
    (
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get x",
        "docker-rights",
        "may not",
    ),
    (
        "ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "docker-down",
        "'unix:///var/run/docker.sock'",
    ),
    ("ERROR: BuildKit is enabled but the buildx component is missing or broken.", "docker-buildx", "buildx is missing"),
    ("toomanyrequests: You have reached your pull rate limit.", "rate-limit", "too many"),
    (
        "FATAL:   While making image from oci registry: error fetching image to cache: Error reading manifest 1.7.1 in "
        "registry.example/casa: manifest unknown: manifest unknown",
        "no-image",
        "base image",
    ),
    ("denied: requested access to the resource is denied", "unauthorized", "login"),
    ("ERROR: HTTP error 401 Client Error: Unauthorized for url", "unauthorized", "login"),
    ("/lib/libc.so.6: version `GLIBC_2.33' not found (required by faked)", "glibc", "GLIBC_2.33"),
    (PIP_HASH, "hash", "required"),
    (UV_HASH, "hash", "required: six==1.16.0"),
    (UV_HASHES, "hash", f"required; {'0' * 64} was given, it has {'8' * 64}: six==1.16.0"),
    (UV_NO_HASH, "hash-none", "a package that is required has none: mdurl"),
    (PIP_TLS, "tls", "certificate"),
    (UV_TLS, "tls", "certificate"),
    ("curl: (60) SSL certificate problem: self-signed certificate", "tls", "certificate"),
    ("ERROR: The certificate of ‘localhost’ is not trusted.", "tls", "certificate"),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "tls", "certificate"),
    (UV_PROXY, "proxy", "proxy"),
    (PIP_DNS, "no-network", "reach"),
    (UV_DNS, "no-network", "reach"),
    ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "no-network", "reach"),
    ("CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.example>", "no-network", "reach"),
    (PIP_TORCH, "build-needs-module", "'torch'"),
    (UV_TORCH, "build-needs-module", "'torch'"),
    (PIP_GCC, "no-compiler", "compiler"),
    (UV_GCC, "no-compiler", "compiler"),
    ("/bin/sh: 1: gcc: not found", "no-compiler", "compiler"),
    ("  error: Cannot compile MPI programs. Check your configuration!!!", "no-mpi", "an MPI"),
    (UV_GIT, "no-git", "no git"),
    ("ERROR: Cannot find command 'git' - do you have 'git' installed and in your PATH?", "no-git", "no git"),
    ("FATAL ERROR: writer: failed to read/uncompress file /image/rootfs/usr/bin/dir", "base-damaged", "base image is"),
    ("/opt/recipe/build/install.sh: 419: sed: Input/output error", "base-damaged", "base image is damaged"),
    ("FATAL:   exec /opt/env/bin/python3 failed: input/output error", "base-damaged", "its disk cannot be read"),
    (
        "error: No solution found when resolving dependencies\n  cause: Because six==1.16.0 has an invalid package "
        "format and you require six==1.16.0, we can conclude that your requirements are unsatisfiable.\n\n"
        "hint: The structure of `six` (v1.16.0) was invalid:\n  Failed to read from zip file",
        "damaged-wheel",
        "six==1.16.0",
    ),
    (
        "error: Failed to read `six @ file:///mnt/six-1.16.0-py2.py3-none-any.whl`\n"
        "  cause: Failed to read metadata: /mnt/six-1.16.0-py2.py3-none-any.whl\n"
        "  cause: Failed to read from zip file\n  cause: unable to locate the end of central directory record",
        "damaged-wheel",
        "/mnt/six-1.16.0-py2.py3-none-any.whl",
    ),
    (
        "error: Failed to download `six==1.16.0`\n  cause: failed to open file "
        "`/cache/.tmp1/six-1.16.0.dist-info/RECORD`: No such file or directory (os error 2)",
        "damaged-wheel",
        "the wheel of 'six==1.16.0' is damaged: it has no RECORD",
    ),
    (
        "recipe: error: the wheel of 'six 1.16.0' names files outside its own folder: '../../x'",
        "damaged-wheel",
        "names files outside its own folder: '../../x'",
    ),
    ("recipe: error: the wheel of 'six 1.16.0' is empty: it has no module", "own-script", "is empty"),
    (
        "recipe: error: no file of 'six 1.16.0' has the digest of the recipe: sha256:aa given, sha256:bb found",
        "hash",
        "no file of 'six 1.16.0' has the digest of the recipe: sha256:aa given",
    ),
    (
        "recipe: error: the recipe has hashes, and packages that are required have none: idna",
        "hash-none",
        "have none: idna",
    ),
    (
        "error: Failed to download `six==1.16.0`\n  cause: Failed to extract archive\n"
        "  cause: unable to locate the end of central directory record",
        "damaged-wheel",
        "six==1.16.0",
    ),
    (UV_WHEEL, "no-wheel", "tensorflow==2.12.0"),
    ("ERROR: No matching distribution found for six==99.0", "no-package", "six==99.0"),
    (UV_VERSION, "no-package", "six==99.0"),
    (UV_UNKNOWN, "no-package", "no-such-package"),
    (PIP_CONFLICT, "conflict", "together"),
    (UV_CONFLICT, "conflict", "together"),
    (
        "PackagesNotFoundError: The following packages are not available:",
        "no-conda-package",
        "conda",
    ),
    (
        "LibMambaUnsatisfiableError: Encountered problems while solving:\n  - nothing provides requested quarto",
        "no-conda-package",
        "quarto",
    ),
    (MAMBA, "no-conda-package", "quartz"),
    ("critical libmamba Could not solve for environment specs", "conda-conflict", "conda"),
    ("OSError: [Errno 24] Too many open files: 'x'", "open-files", "open files"),
    ("mkdir: cannot create directory '/appl/x': Permission denied", "no-rights", "/appl/x"),
    ("PermissionError: [Errno 13] Permission denied: '/appl/x'", "no-rights", "/appl/x"),
    ("1-build.sh: line 7: cotainr: command not found", "no-program", "'cotainr'"),
    ("verify: error: torch 2.8.0 is not built for amd GPUs\nFATAL: failed", "not-as-planned", "not built for amd GPUs"),
    (
        "recipe: error: 'cupy-cuda12x' 13.6.0 is wrong for 'lumi-g': it is for NVIDIA, this GPU is AMD's (a.so)",
        "gpu-audit",
        "'cupy-cuda12x' 13.6.0 is wrong for 'lumi-g'",
    ),
    ("recipe: error: torch of the base image was replaced: 2.8.0a0 before, 2.9.0 now", "base-replaced", "2.9.0 now"),
    (
        "error: No solution found\n  cause: Because six==1.0 needs to be downloaded from a registry\n"
        "recipe: error: wheels of 'torch' were not fetched before, and no server is asked",
        "not-fetched",
        "wheels of 'torch' were not fetched before",
    ),
    ("recipe: error: the base image has no python3: add 'python=3.12'", "own-script", "has no python3"),
]


@rows(("text", "code", "word"), KNOWN)
def test_known_failures_have_one_cause_and_one_fix(text: str, code: str, word: str) -> None:
    finding = explain(STEP, text.splitlines(), 255, log="logs/build.log")
    assert finding.code == code
    assert word in finding.message
    assert finding.message.startswith("step 'build' failed: ")
    assert "{" not in finding.message + finding.fix
    assert not finding.message.endswith((":", " "))
    assert finding.fix
    assert finding.at is not None
    assert finding.at.file == "logs/build.log"


def test_git_is_not_added_to_a_file_that_cannot_name_it() -> None:
    """A requirements.txt has no container.system."""
    fix = explain(STEP, UV_GIT.splitlines(), 1).fix
    assert "base image with git" in fix
    assert "container.system" not in fix


def test_no_binary_asks_for_the_digest_of_the_sources() -> None:
    text = f"recipe: built from sources, as --no-binary asks: six\n{UV_HASH}"
    finding = explain(STEP, text.splitlines(), 1)
    assert finding.code == "hash"
    assert "the sources of a package do not have the digest" in finding.message
    assert finding.fix.endswith("or remove --no-binary: it is for six")


def test_a_damaged_base_image_is_named() -> None:
    finding = explain(STEP, ["cat: /usr/bin/x: Input/output error"], 1, base="/images/base.sif")
    assert "the base image '/images/base.sif' is damaged" in finding.message


def test_every_cause_has_an_example() -> None:
    assert {cause.code for cause in CAUSES} == {code for _, code, _ in KNOWN}


def test_codes_are_unique() -> None:
    codes = [(cause.code, cause.needs, cause.message) for cause in CAUSES]  # the same fault has one code
    assert len(codes) == len(set(codes))


@rows(
    "harmless",
    [
        "INFO:    User not listed in /etc/subuid, trying root-mapped namespace",
        "WARNING: 'nodev' mount option set on /tmp, it could be a source of failure during build process",
        "WARNING: Skipping mount /etc/resolv.conf [files]: /etc/resolv.conf doesn't exist in container",
        "INFO:    fakeroot command not found",
        "WARNING: integrity: signature not found for object group 1",
        "You have accepted the Miniforge installer license via the command line option '--accept-licenses'.",
        "INFO:    Terminating squashfuse_ll after timeout",
        "ModuleNotFoundError: No module named 'mymodule'",
        "checking for gcc... gcc",
        "Collecting oomkill-exporter",
    ],
)
def test_what_good_builds_print_is_no_cause(harmless: str) -> None:
    assert explain(STEP, [harmless, "something broke"], 1).code == UNKNOWN


def test_an_unknown_failure_gives_its_last_word_and_its_log() -> None:
    tail = ["INFO: go", "FATAL:   While performing build: while running engine: exit status 7", "INFO: cleaning"]
    finding = explain(STEP, tail, 255, log="logs/build.log")
    assert finding.message == (
        "step 'build' ended with exit code 255: FATAL:   While performing build: while running engine: exit status 7"
    )
    assert finding.fix == "read the end of its log, 'logs/build.log'"


def test_silence_is_said_to_be_silence() -> None:
    finding = explain(STEP, [], 3)
    assert finding.message == "step 'build' ended with exit code 3 and said nothing"
    assert finding.fix == "run `bash 1-build.sh` in the plan folder"


def test_sigkill_without_a_word_is_taken_for_memory() -> None:
    assert explain(STEP, ["Collecting torch"], 137).code == "no-memory"


def test_what_happened_long_before_the_end_is_no_cause() -> None:
    early = ["Could not resolve host: mirror.example (retrying)", *["ok"] * 200, "the compiler said no"]
    assert explain(STEP, early, 1).code == UNKNOWN


def test_braces_in_a_log_do_no_harm() -> None:
    assert "'{0}{x}'" in explain(STEP, ["sh: {0}{x}: command not found"], 127).message


@rows(
    ("tail", "expected"),
    [
        (["Traceback (most recent call last):", "  File x", "ValueError: bad", "note: y", ""], "ValueError: bad"),
        (["error: first", "error: second"], "error: second"),
        (["just this"], "just this"),
        (["", "hint: no"], ""),
        (["x" * 500], "x" * 197 + "..."),
    ],
)
def test_last_word(tail: list[str], expected: str) -> None:
    assert find_error_line(tail) == expected


BUILDKIT_OLD = """\
#5 0.344 one
#5 0.368 cp: cannot stat '/no/such/file': No such file or directory
#5 ERROR: executor failed running [/bin/sh -c sh run.sh]: exit code: 1
------
 > [2/2] RUN sh run.sh:
------
executor failed running [/bin/sh -c sh run.sh]: exit code: 1
"""
BUILDKIT_NEW = """\
#5 0.368 cp: cannot stat '/no/such/file': No such file or directory
#5 ERROR: process "/bin/sh -c sh run.sh" did not complete successfully: exit code: 1
------
 > [2/2] RUN sh run.sh:
0.368 cp: cannot stat '/no/such/file': No such file or directory
------
Dockerfile:2
--------------------
   1 |     FROM x
   2 | >>> RUN sh run.sh
--------------------
ERROR: failed to solve: process "/bin/sh -c sh run.sh" did not complete successfully: exit code: 1
"""
APPTAINER = """\
+ cp /no/such/file /opt
cp: cannot stat '/no/such/file': No such file or directory
FATAL:   While performing build: while running engine: while running %post section: exit status 1
"""


@pytest.mark.parametrize("text", [BUILDKIT_OLD, BUILDKIT_NEW, APPTAINER], ids=["buildkit-20", "buildkit", "apptainer"])
def test_a_command_of_the_build_is_cited_and_not_its_engine(text: str) -> None:
    finding = explain(STEP, text.splitlines(), 1)
    assert finding.message.endswith(": cp: cannot stat '/no/such/file': No such file or directory")


def test_what_our_own_program_says_to_do_is_the_fix() -> None:
    tail = ["recipe: error: conda packages need py-rattler, which /usr/bin/python3 has not", "recipe: fix: in the log"]
    error = Event(name="error", data={"message": tail[0], "fix": "install uv"})
    assert explain(STEP, tail, 1, error=error).fix == "install uv"
    assert explain(STEP, tail, 1).fix == "do as it says, then build again"
    # A failure that is known has its own.
    known = explain(STEP, ["recipe: error: torch of the base image was replaced: 1 before, 2 now"], 1, error=error)
    assert known.code == "base-replaced"
    assert known.fix != "install uv"


CACHE_LINE = "recipe: this was written to the cache '/home/me/.cache/recipe'"
TEMPORARY_LINE = "recipe: this was written to the temporary folder '/tmp'"
OUTPUT_LINE = "recipe: this was written to the folder of the image '/scratch/me'"


@rows(
    ("said", "where", "code", "message", "option"),
    [
        (text, where, code, message, option)
        for text, code in (
            ("Write failed because No space left on device", "no-space"),
            ("FATAL ERROR: Failed to write to output filesystem", "no-space"),
            ("error: failed to copy file: No space left on device (os error 28)", "no-space"),
            ("recipe: error: No space left on device", "no-space"),
            ("recipe: error: Disk quota exceeded", "quota"),
        )
        for where, message, option in (
            (CACHE_LINE, "the cache '/home/me/.cache/recipe'", "RECIPE_CACHE_DIR"),
            (OUTPUT_LINE, "'/scratch/me'", "-o"),
            (TEMPORARY_LINE, "'/tmp'", "--tmpdir"),
        )
    ],
)
def test_fault_04_a_full_disk_is_named_with_the_option_that_moves_that_place(
    said: str, where: str, code: str, message: str, option: str
) -> None:
    finding = explain(STEP, [said, where], 1)
    assert finding.code == code
    assert finding.message.endswith(message)
    assert option in finding.fix
    assert ("--tmpdir" in finding.fix) == (option == "--tmpdir")


def test_fault_05_a_home_that_may_not_be_written_is_not_the_output() -> None:
    tail = ["recipe: error: permission denied '/home/me/.cache'", CACHE_LINE]
    finding = explain(STEP, tail, 1)
    assert (finding.code, finding.fix) == (
        "no-rights",
        "check its rights, or set RECIPE_CACHE_DIR to a folder of your own",
    )


def test_fault_05_the_sif_of_apptainer_is_not_a_temporary_file() -> None:
    said = "FATAL:   While performing build: while creating SIF: while creating container: no space left on device"
    finding = explain(STEP, [said], 255)
    assert finding.code == "no-space-output"
    assert "-o" in finding.fix
    assert "--tmpdir" not in finding.fix


def test_fault_05_a_base_too_big_for_the_cache_is_named_in_gos_words_too() -> None:
    said = "FATAL:   While performing build: while unpacking layer: unpack entry: usr/lib/x: no space left on device"
    finding = explain(STEP, [said, CACHE_LINE], 255)
    assert finding.code == "no-space"
    assert "RECIPE_CACHE_DIR" in finding.fix


@rows(
    ("text", "host"),
    [
        (UV_DNS, "nohost.invalid"),
        (UV_TLS, "localhost"),
        (UV_DNS.replace("://", "://me:secret@"), "nohost.invalid"),
        ("curl: (6) Could not resolve host: conda.example.org", "conda.example.org"),
        ("curl: (7) Failed to connect to conda.example.org port 443: Connection refused", "conda.example.org"),
        (
            'FATAL: Get "https://registry-1.example.org/v2/": dial tcp: lookup registry-1.example.org on '
            "127.0.0.53:53: no such host",
            "registry-1.example.org",
        ),
        (
            "WARNING: Retrying after NameResolutionError(\"HTTPSConnection(host='pip.example.org', "
            "port=443): Failed to resolve 'pip.example.org' ([Errno -2] Name or service not known)\"): /simple/six/",
            "pip.example.org",
        ),
        (
            "CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://me:t0ken@conda.example.org/noarch/repodata.json>",
            "conda.example.org",
        ),
        ("Looking in indexes: https://pip.example.org/simple\nOSError: Network is unreachable", ""),
        ("fatal: https://a:b@c@git.example.org/x: Connection refused", "git.example.org"),
    ],
)
def test_a_server_out_of_reach_is_named_without_a_login(text: str, host: str) -> None:
    finding = explain(STEP, text.splitlines(), 1)
    assert finding.code in ("no-network", "tls")
    assert finding.message.endswith(f": {host}" if host else "a server it needs")
    assert not {"secret", "t0ken", "me:"} & set(re.split(r"[@/ ]", finding.message))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["+ true", "made", "+ cp /no/such/file /opt", "cp: cannot stat '/no/such/file': No such file or directory"],
            "command 1 of container.run failed: cp: cannot stat '/no/such/file': No such file or directory",
        ),
        (["+ exit 3", "+ sleep 300"], "command 1 of container.run failed"),
        (["an engine's own words"], "command 1 of container.run failed"),
    ],
)
def test_a_command_of_the_recipe_is_cited_with_its_own_words(lines: list[str], said: str) -> None:
    ends = [
        "recipe: command 1 of container.run failed with exit code 1",
        "recipe: part 'run' of the installation failed with exit code 1",
        "FATAL:   While performing build: while running engine: exit status 1",
    ]
    assert find_error_line([*lines, *ends]) == said


def test_an_unreachable_index_of_torch_names_its_mirror() -> None:
    log = UV_DNS.replace("http://nohost.invalid/simple/six/", "https://download.pytorch.org/whl/cpu/torch/")
    for text, named in ((log, True), (UV_DNS, False)):
        cause = next(one for one in PACKAGES if one.pattern.search(text) and (not one.needs or one.needs.search(text)))
        assert (cause.code, "RECIPE_TORCH_INDEX" in cause.fix) == ("no-network", named)

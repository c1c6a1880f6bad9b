"""Failures that are the machine's: disk, memory, rights to build."""

from __future__ import annotations

from builder.system.failures import make_cause

OWN = (
    make_cause(
        "gpu-audit",
        r"recipe: error: (?P<what>'[^']+' \S* ?is wrong for '(?P<site>[^']+)': .+)",
        message="{what}",
        fix="leave it out, or install its build for this GPU (`recipe sites {site}` shows it); "
        "where it is only used without a GPU: --ignore gpu-audit",
    ),
    make_cause(
        "not-as-planned",
        r"verify: error: (?P<what>.+)",
        message="the image is not what was planned: {what}",
        fix="see which package brought that torch in its log; pin it, or leave out what requires another one",
    ),
    make_cause(
        "base-replaced",
        r"recipe: error: (?P<what>\S+ of the base image was replaced: .+)",
        message="{what}",
        fix="find the package or command that installs another one in its log, and leave it out",
    ),
    make_cause(
        "not-fetched",
        r"recipe: error: (?P<what>.+ not fetched before, and no server is asked)",
        message="{what}",
        fix="fetch it where there is a network: `recipe fetch`, with the same RECIPE_CACHE_DIR; or leave out --offline",
    ),
    make_cause(
        "own-script",
        r"recipe: error: (?P<what>.+)",
        message="{what}",
        fix="do as it says, then build again",
    ),
)


_SPACE = "free space, or choose another place for temporary files with --tmpdir"
_CACHE = r"^recipe: this was written to the cache '(?P<place>.*)'"
_OUTPUT = r"^recipe: this was written to the folder of the image '(?P<place>.*)'"
_TEMPORARY = r"^recipe: this was written to the temporary folder '(?P<place>.*)'"
_MOVE_CACHE = "make room there (`recipe cache prune`), or set RECIPE_CACHE_DIR to a folder on a larger disk"
_MOVE_OUTPUT = "make room there, or choose a folder on a larger disk with -o"
_FULL = (
    r"[Nn]o space left on device",  # Go writes it small
    r"Errno 28",
    r"os error 28\b",
    r"ENOSPC",
    r"Failed to write to output filesystem",
    r"tar: .*: Wrote only \d+ of \d+ bytes",
)
_LIMIT = (r"File too large", r"os error 27\b", r"Errno 27\b", r"File size limit exceeded")
_QUOTA = (r"[Dd]isk quota exceeded", r"EDQUOT", r"os error 122\b")

MACHINE = (
    make_cause(
        "time-limit",
        r"CANCELLED AT .* DUE TO TIME LIMIT",
        r"DUE to TIME LIMIT",
        message="the job's time was up",
        fix="ask for a longer time limit",
    ),
    # user.max_user_namespaces=0 says "No space left on device": it has to come before the full disk (apptainer#2455)
    make_cause(
        "no-user-namespaces",
        r"requires either a suid installation or unprivileged user namespaces",
        r"[Ff]ailed to create user namespace",
        r"no user namespace available",
        r"mount namespace requires privileges",
        r"Unprivileged user namespaces may not be enabled",
        r"Failed to create container (?:process|namespaces)",
        message="this machine does not let you use user namespaces, and without them nothing can be built from a file",
        fix="build on another machine with --backend docker and convert the archive, or ask the site's administrators",
    ),
    make_cause(
        "no-subuid",
        r"no mapping entry found in /etc/sub[ug]id",
        r"could not use fakeroot",
        r"'?new[ug]idmap'?.*(?:failed|not found|different user)",
        message="this machine has no range of user ids for you in /etc/subuid and /etc/subgid, so fakeroot cannot work",
        fix="ask the administrators for such a range, or build on another machine with --backend docker",
    ),
    make_cause(
        "one-user-id",
        r"E: set(?:groups|e?[ug]id) \d+ failed",
        r"su: cannot set groups",
        r"chown: .*: Invalid argument",
        message="a package wanted to change users inside the build, and this machine gives the build one user id only",
        fix="have `fakeroot` installed on this machine or a range in /etc/subuid, or leave that package out",
    ),
    # The program that makes layers prints last where it wrote: the engine's message does not tell.
    make_cause("quota", *_QUOTA, needs=_CACHE, message="your quota is used up in the cache '{place}'", fix=_MOVE_CACHE),
    make_cause("quota", *_QUOTA, needs=_TEMPORARY, message="your quota is used up in '{place}'", fix=_SPACE),
    make_cause("quota", *_QUOTA, needs=_OUTPUT, message="your quota is used up in '{place}'", fix=_MOVE_OUTPUT),
    make_cause("quota", *_QUOTA, message="your quota there is used up", fix=_SPACE),
    make_cause(
        "no-space",
        *_FULL,
        needs=_CACHE,
        message="no space was left on the disk of the cache '{place}'",
        fix=_MOVE_CACHE,
    ),
    make_cause(
        "no-space",
        *_FULL,
        needs=_TEMPORARY,
        message="no space was left on the disk of the temporary folder '{place}'",
        fix=_SPACE,
    ),
    make_cause(
        "no-space", *_FULL, needs=_OUTPUT, message="no space was left on the disk of '{place}'", fix=_MOVE_OUTPUT
    ),
    # Apptainer's words for its last file, which is not a temporary one (pkg/sylog; seen with 1.4.5).
    make_cause(
        "no-space-output",
        r"while creating SIF.*[Nn]o space left on device",
        r"(?:copying|writing).*\.(?:sif|part)\b.*[Nn]o space left on device",
        message="no space was left on the disk of the image",
        fix=_MOVE_OUTPUT,
    ),
    make_cause(
        "no-rights",
        r"recipe: error: (?P<what>(?:permission denied|operation not permitted|read-only file system).*)",
        needs=_CACHE,
        message="the cache '{place}' cannot be used: {what}",
        fix="check its rights, or set RECIPE_CACHE_DIR to a folder of your own",
    ),
    make_cause(
        "no-space-image",
        r"Write failed because No space left on device",
        r"Failed to write to output filesystem",
        message="the disk was full while the image was packed",
        fix=_SPACE,
    ),
    make_cause(
        "no-space",
        *_FULL,
        message="no space was left on the disk",
        fix=_SPACE,
    ),
    make_cause(
        "file-size",
        *_LIMIT,
        message="a file reached the largest size that this shell or the disk allows",
        fix="raise it with `ulimit -f unlimited`, or choose folders on another disk with -o and --tmpdir",
    ),
    make_cause(
        "no-memory",
        r"oom[-_]kill",
        r"[Oo]ut [Oo]f [Mm]emory",
        r"\bMemoryError\b",
        r"Cannot allocate memory",
        r"std::bad_alloc",
        r"memory allocation of \d+ bytes failed",  # Rust's
        r"code: 11, kind: WouldBlock",  # Rust's, where a thread has no memory for its stack
        r"can't spawn worker thread: .*\(os error 11\)",  # the same, in the words of its pool
        r"signal: killed",
        r"exit status 137",
        r"^\S*: line \d+: +\d+ Killed\b",
        r"^Killed$",
        message="the memory was used up and a program was killed",
        fix="ask for more memory (--mem); files in a /tmp in memory count too: --tmpdir can name a folder on a disk",
    ),
    make_cause(
        "read-only",
        r"Read-only file system",
        r"Errno 30\b",
        r"os error 30\b",
        message="a program wanted to write to a read-only file system",
        fix="write elsewhere: inside the image under /opt, for temporary files with --tmpdir",
    ),
)

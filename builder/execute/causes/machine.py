"""Failures that are the machine's: disk, memory, rights to build."""

from builder.execute.causes.cause import cause

_SPACE = "free space, or choose another place for temporary files with --tmpdir"

MACHINE = (
    cause(
        "time-limit",
        r"CANCELLED AT .* DUE TO TIME LIMIT",
        r"DUE to TIME LIMIT",
        message="the job's time was up",
        fix="ask for a longer time limit",
    ),
    # user.max_user_namespaces=0 says "No space left on device": it has to come before the full disk (apptainer#2455)
    cause(
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
    cause(
        "no-subuid",
        r"no mapping entry found in /etc/sub[ug]id",
        r"could not use fakeroot",
        r"'?new[ug]idmap'?.*(?:failed|not found|different user)",
        message="this machine has no range of user ids for you in /etc/subuid and /etc/subgid, so fakeroot cannot work",
        fix="ask the administrators for such a range, or build on another machine with --backend docker",
    ),
    cause(
        "one-user-id",
        r"E: set(?:groups|e?[ug]id) \d+ failed",
        r"su: cannot set groups",
        r"chown: .*: Invalid argument",
        message="a package wanted to change users inside the build, and this machine gives the build one user id only",
        fix="have `fakeroot` installed on this machine or a range in /etc/subuid, or leave that package out",
    ),
    cause("quota", r"[Dd]isk quota exceeded", r"EDQUOT", message="your quota there is used up", fix=_SPACE),
    cause(
        "no-space-image",
        r"Write failed because No space left on device",
        r"Failed to write to output filesystem",
        message="the disk was full while the image was packed",
        fix=_SPACE,
    ),
    cause(
        "no-space",
        r"No space left on device",
        r"Errno 28",
        r"ENOSPC",
        r"tar: .*: Wrote only \d+ of \d+ bytes",
        message="no space was left on the disk",
        fix=_SPACE,
    ),
    cause(
        "no-memory",
        r"oom[-_]kill",
        r"[Oo]ut [Oo]f [Mm]emory",
        r"\bMemoryError\b",
        r"Cannot allocate memory",
        r"std::bad_alloc",
        r"signal: killed",
        r"exit status 137",
        r"^\S*: line \d+: +\d+ Killed\b",
        r"^Killed$",
        message="the memory was used up and a program was killed",
        fix="ask for more memory (--mem); files in a /tmp in memory count too: --tmpdir can name a folder on a disk",
    ),
    cause(
        "read-only",
        r"Read-only file system",
        r"Errno 30\b",
        r"os error 30\b",
        message="a program wanted to write to a read-only file system",
        fix="write elsewhere: inside the image under /opt, for temporary files with --tmpdir",
    ),
)

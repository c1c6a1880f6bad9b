"""Failures of Apptainer, cotainr, Docker and registries."""

from builder.system.failures import make_cause

ENGINES = (
    make_cause(
        "bind-at-build",
        r"destination (?P<path>\S+) doesn't exist in container",
        message="'{path}' was to be bound into the image while it was built, and the image has no such path",
        fix="unload modules that bind site folders (singularity-bindings, apptainer-enable-mpi) and unset *_BINDPATH",
    ),
    make_cause(
        "bind-source",
        r"mount source (?P<path>\S+) doesn't exist",
        message="'{path}' was to be bound into the container and does not exist on this machine",
        fix="run this on a node that has it, or take it out of the binds",
    ),
    make_cause(
        "no-proot",
        r"or the proot command are required to build",
        r"proot is not installed, or its module is not loaded",
        message="a definition file is built in PRoot at this site, and there is no proot on PATH",
        fix="load the module that has it (on LUMI: module load LUMI systools), or build on a node of the site",
    ),
    make_cause(
        "no-fuse",
        r"fuse: device not found",
        r"squashfuse\S* (?:exited with status|not found)",
        r"fusermount3?: .*(?:not permitted|not found)",
        r"/dev/fuse: (?:Permission denied|No such file)",
        message="the image could not be mounted: this machine has no usable FUSE",
        fix="ask the administrators for /dev/fuse and squashfuse, or run on another node",
    ),
    # unsquashfs, the kernel and squashfuse, where a block cannot be unpacked (seen with Apptainer 1.4.5).
    make_cause(
        "base-damaged",
        r"failed to read/uncompress file",
        r"(?:zlib|gzip|xz|zstd|lz4|lzo)[\w:]* uncompress failed",
        r"(?<!because )[Ii]nput/output error",
        r"\[Errno 5\]|os error 5\b",
        message="the base image '{base}' is damaged, or its disk cannot be read",
        fix="copy or download it again; a downloaded one is removed by `recipe cache prune --downloads` and "
        "`apptainer cache clean`",
    ),
    make_cause(
        "multiple-conda",
        r"Multiple Conda installs interfere",
        message="the base image already holds a conda, and cotainr can have only its own",
        fix="take a base image without conda (lumi-rocm-*) in container.base, or another backend",
    ),
    make_cause(
        "licence",
        r"not accepted the Miniforge installer license",
        r"licence of Miniforge is not accepted",
        r"_display_miniforge_license_for_acceptance",  # without a terminal its question ends in a termios error
        r"Terms of Service have not been accepted",
        r"CondaToSNonInteractiveError",
        message="a licence has to be accepted first",
        fix="read it and give --accept-licenses; for Anaconda's own channels use conda-forge in their place",
    ),
    make_cause(
        "overwrite-refused",
        r"chosen not to overwrite (?P<path>\S+?)\.? ",
        message="'{path}' exists and was not overwritten",
        fix="remove it and build again",
    ),
    make_cause(
        "prompt",
        r"EOFError: EOF when reading a line",
        message="a program asked a question, which a build cannot answer",
        fix="give --accept-licenses, and remove what the question is about",
    ),
    make_cause(
        "wrapper-on-path",
        r"Remove (?P<path>.+) from PATH before running the tool",  # construct.py of hpc-container-wrapper 0.4.2
        message="an installation of Tykky is on PATH, and it makes no other one then: {path}",
        fix="take its bin/ out of PATH and build again",
    ),
    make_cause(
        "docker-rights",
        r"permission denied while trying to connect to the [Dd]ocker",
        message="you may not use the Docker daemon of this machine",
        fix="have yourself added to the group `docker`, or set DOCKER_HOST to a rootless daemon",
    ),
    make_cause(
        "docker-down",
        r"Cannot connect to the Docker daemon at (?P<address>\S+?)\.? ",
        message="no Docker daemon answers at '{address}'",
        fix="start it or ask the administrator to, set DOCKER_HOST to where one is, or build with another backend",
    ),
    make_cause(
        "docker-buildx",
        r"the buildx component is missing or broken",  # docker 23 and later; Debian's 20.10 has BuildKit built in
        message="this docker client cannot build with BuildKit: its plug-in buildx is missing",
        fix="install docker-buildx (Docker calls it docker-buildx-plugin), or put another docker client on PATH",
    ),
    make_cause(
        "rate-limit",
        r"toomanyrequests",
        r"You have reached your (?:unauthenticated )?pull rate limit",
        r"429 Too Many Requests",
        message="the registry has had too many requests from here",
        fix="log in to the registry, or try again in some hours",
    ),
    make_cause(
        "no-image",
        r"manifest unknown",
        r"MANIFEST_UNKNOWN",
        r"[Nn]ame unknown",
        r"NAME_UNKNOWN",
        r"manifest for \S+ not found",
        r"repository does not exist",
        message="the registry does not have the base image",
        fix="check the name and the tag of container.base",
    ),
    make_cause(
        "unauthorized",
        r"unauthorized:",
        r"authentication required",
        r"requested access to the resource is denied",
        r"denied: denied",
        r"401 (?:Unauthorized|Client Error|Error)",
        r"403 (?:Forbidden|Client Error)",
        r"invalid status code from registry 40[13]",
        message="the registry or package index refused: it wants a login, or the name is wrong",
        fix="check the name, and give the credentials in the environment or with `apptainer registry login`",
    ),
    make_cause(
        "glibc",
        r"version [`'](?P<version>GLIBC(?:XX)?_[\d.]+)' not found",
        message="a program or library wants {version}, which is newer than what it was started on",
        fix="take a newer base image in container.base, or an older release of the package",
    ),
)

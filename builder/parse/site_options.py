"""Options and variables that a site gives to programs of its machines: none may become, or run, a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from builder.model.finding import Finding, Location
from builder.model.secrets import find_address_secret
from builder.model.site import Site
from builder.model.text import VARIABLE, sanitize
from builder.model.variables import find_reserved_on_host, split_words
from builder.parse.site_texts import PLAIN

SETTING = re.compile(r"[A-Z][A-Za-z0-9_]*")  # the scripts' own variables begin with a small letter
PROXY = re.compile(r"(?:http|https|ftp|all|no|rsync)_proxy", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a program takes options: the form of a long one, single letters without a value, and the refused ones."""

    form: re.Pattern[str]
    letters: str
    refused: frozenset[str]
    shortened: bool = False  # whether the program takes the beginning of a name for the name (getopt_long)

    def is_refused(self, name: str) -> bool:
        """Whether an option runs a command, or writes or reads what the scripts do not expect."""
        if not self.shortened or name == "export":
            return name in self.refused
        return any(one.startswith(name) for one in self.refused)


VALUE = r"(?:=[A-Za-z0-9_.,:+=@%/{}-]*)?"
LONG = re.compile(rf"--([a-z][a-z0-9-]*){VALUE}")
# srun(1), sbatch(1) of Slurm 25.05: what is run next to or around the job, what writes files, what the scripts set.
SLURM = Options(
    form=LONG,
    letters="EHKOQWXklsuv",
    refused=split_words(
        "array bb bbf bcast bcast-exclude chdir container container-id epilog error export-file get-user-env gid help "
        "input job-name jobid multi-prog output parsable prolog pty send-libs task-epilog task-prolog test-only uid "
        "usage version wrap"
    ),
    shortened=True,
)
# `apptainer exec --help` of 1.4.5, and SingularityCE 4.3: --fusemount=host:PROGRAM runs it outside the image.
RUNTIME = Options(
    form=LONG,
    letters="Cceipu",
    refused=split_words(
        "add-caps allow-setuid app apply-cgroups authfile config cwd dmtcp-launch dmtcp-restart docker-host "
        "docker-login docker-password docker-username env env-file fusemount help keep-privs network-args oci overlay "
        "passphrase pem-path pid-file pwd security shell vm vm-cpu vm-err vm-ip vm-ram writable"
    ),
)
# `mpiexec -help` of Intel MPI 2021.15, MPICH's Hydra; long options have one dash or two.
HYDRA = Options(
    form=re.compile(rf"--?([A-Za-z][A-Za-z0-9_-]*){VALUE}"),
    letters="lvV",
    refused=split_words(
        "bootstrap-exec bootstrap-exec-args check_mpi ckpoint ckpoint-prefix ckpointlib configfile ddd debugger dir "
        "env envlist errfile errfile-pattern f gdb gdb-ia genv genvlist gpath gtool gtoolfile gwdir help host hostfile "
        "hosts launcher-exec machine machinefile outfile outfile-pattern path profile totalview trace tune tv umask "
        "valgrind version wdir"
    ),
)


def check_options(site: Site) -> Iterator[Finding]:
    """Yield every word that is not an option, and every option that runs something other than the scripts do."""
    launcher = HYDRA if site.launch.launcher == "mpiexec" else SLURM
    for key, options, given in (
        ("launch.options", launcher, site.launch.options),
        ("launch.one_gpu_options", launcher, site.launch.one_gpu_options),
        ("launch.node_options", launcher, site.launch.node_options),
        ("launch.rank_options", launcher, site.launch.rank_options),
        ("runtime.options", RUNTIME, site.runtime.options),
        ("scheduler.submit", SLURM, site.scheduler.submit),
    ):
        yield from _check_words(given, options=options, key=key)
    if site.runtime.gpu_flag:
        yield from _check_words([site.runtime.gpu_flag], options=RUNTIME, key="runtime.gpu_flag")
    asked = site.scheduler.gpu_option.partition("=")[0]
    if asked and SLURM.is_refused(asked):
        yield _make_refusal(asked, "scheduler.gpu_option")
    for purpose, job in site.scheduler.jobs.items():
        for name, value in job.options.items():
            key = f"scheduler.jobs.{purpose}.options.{name}"
            if SLURM.is_refused(name):
                yield _make_refusal(name, key)
            elif name == "export":
                yield from _check_export(value, key=key)


def _check_words(given: Sequence[str], *, options: Options, key: str) -> Iterator[Finding]:
    for index, word in enumerate(given):
        at = key if key.endswith("gpu_flag") else f"{key}[{index}]"
        if not PLAIN.fullmatch(word) or (len(word) == 2 and word[0] == "-" and word[1] in options.letters):
            continue  # `site_texts` has reported other texts
        found = options.form.fullmatch(word)
        if found is None:
            message = f"'{sanitize(word)}' is no option by itself"
            fix = "write long options, a value after '=': --name or --name=value"
            yield Finding(code="site-option", message=message, at=Location(key=at), fix=fix)
        elif options.is_refused(found[1]):
            yield _make_refusal(word, at)
        elif options is SLURM and found[1] == "export":
            yield from _check_export(word.partition("=")[2], key=at)


def _make_refusal(word: str, key: str) -> Finding:
    message = f"the option '{sanitize(word)}' is refused: it runs, reads or writes something that the scripts do not"
    return Finding(code="site-option", message=message, at=Location(key=key), fix="leave it out")


def _check_export(value: str, *, key: str) -> Iterator[Finding]:
    """The value of Slurm's --export: NONE, ALL, NIL or names, which may bring values along."""
    for item in value.split(","):
        name = item.partition("=")[0]
        if name not in ("", "NONE", "ALL", "NIL"):
            yield from _name_faults(name, key=key)


def check_settings(site: Site) -> Iterator[Finding]:
    """Yield every variable of a site that would run a command on its machines, or change what the scripts run."""
    launch = site.launch
    for table, settings in (
        ("environment", launch.environment),
        ("one_node_environment", launch.one_node_environment),
        ("multi_node_environment", launch.multi_node_environment),
        ("rank_environment", launch.rank_environment),
    ):
        for name, value in settings.items():
            key = f"launch.{table}.{name}"
            yield from _name_faults(name, key=key)
            if name in ("SLURM_EXPORT_ENV", "SBATCH_EXPORT"):
                yield from _check_export(value, key=key)
    for name, value in site.network.proxy.items():
        if find_address_secret(value if "://" in value else f"http://{value}"):
            message = f"the address of 'network.proxy.{sanitize(name)}' has credentials in it, and every plan shows it"
            fix = f"remove them; set {sanitize(name)} in the shell that builds"
            yield Finding(
                code="site-secret", message=message, at=Location(key=f"network.proxy.{sanitize(name)}"), fix=fix
            )
        if not PROXY.fullmatch(name):
            message = f"'{sanitize(name)}' is no variable of a proxy"
            fix = "write http_proxy, https_proxy, all_proxy, ftp_proxy or no_proxy, in small letters or capitals"
            yield Finding(code="site-variable", message=message, at=Location(key=f"network.proxy.{name}"), fix=fix)


def _name_faults(name: str, *, key: str) -> Iterator[Finding]:
    if not VARIABLE.fullmatch(name):
        return  # `site_texts` has reported it
    owner = find_reserved_on_host(name)
    if owner is not None:
        message = f"'{sanitize(name)}' cannot be a variable of a site: {owner.why}"
        yield Finding(code="site-variable", message=message, at=Location(key=key), fix=owner.fix)
    elif not SETTING.fullmatch(name):
        message = f"'{sanitize(name)}' cannot be a variable of a site: the scripts have variables in small letters"
        yield Finding(code="site-variable", message=message, at=Location(key=key), fix="begin it with a capital letter")

"""What a site may say: a pattern for each text, and no option or variable that becomes, or runs, a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from builder.model.finding import Finding, Location
from builder.model.secrets import find_address_secret
from builder.model.site import Site
from builder.model.text import CONTROL, VARIABLE, sanitize
from builder.model.variables import find_reserved_on_host, split_words
from builder.parse.yaml import Listing, Table, Text, Value

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
KEY = re.compile(r"[A-Za-z0-9_.-]+")
MODULE = re.compile(r"purge|(?:use|load|unload) [A-Za-z0-9_.+/:-]+")
PLAIN = re.compile(r"[A-Za-z0-9_.,:+=@%/{}-]*")
# ${NAME} is the one thing that a shell may expand in a site's value; $ and ` in any other form are refused.
CHARACTER = r"[^$`\\\"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
VARIABLE_NAMED = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
EXPANSION = re.compile(rf"(?:{CHARACTER}|{VARIABLE_NAMED})*")
BIND = re.compile(rf"(?=[/$])(?:(?!,){CHARACTER}|{VARIABLE_NAMED})+")
REFERENCE = re.compile(r"(?:(?:docker|oras|library)://[A-Za-z0-9]|/)[A-Za-z0-9_./:@+-]*")
PORT = re.compile(r"([1-9][0-9]{3,4})(\+job)?|free")
SUFFIX = re.compile(r"[A-Za-z0-9.-]{0,100}")
FORM = re.compile(r"[A-Za-z0-9_.@+<>{}\[\]|:/ -]*")  # of an account, for people

# Key paths; "*" is any key of a table. Prose is never in generated code: it is only printed.
SECTIONS = ("node", "gpu", "network", "scheduler", "runtime", "build", "launch", "base_images")
PROSE = (
    ("title",),
    ("description",),
    ("storage",),
    ("unknown",),
    ("hostnames",),
    ("sources", "*", "what"),
    ("sources", "*", "checked"),
    ("node", "os"),
    ("gpu", "model"),
    ("gpu", "unsure"),
    ("base_images", "unsure"),
    ("network", "fabric"),
    ("launch", "torchrun_refused"),
    *((section, word) for section in SECTIONS for word in ("note", "source")),
)
KEY_ITSELF = "(key)"
SEVERAL_LINES = ("note", "storage", "what")

Rule = tuple[re.Pattern[str], str]
EXPANDED: Rule = (EXPANSION, "plain text and ${NAME} only; no $( ), quotes or backslashes")
MODULES: Rule = (MODULE, "write 'use PATH', 'load NAME', 'unload NAME' or 'purge'")
BINDS: Rule = (BIND, "write an absolute path, with ${NAME} if need be; one path an item, no commas")
SETTINGS = ("environment", "one_node_environment", "multi_node_environment", "rank_environment")
PORTS = "give a port from 1024 to 65535, one to which the job's number is added: 10000+job, or free"
NAMED: Rule = (VARIABLE, "write the name of an environment variable")
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("name",), (NAME, "use small letters, digits and '-'")),
    (("runtime", "modules"), MODULES),
    (("runtime", "run_modules"), MODULES),
    (("launch", "plugin_modules"), MODULES),
    (("build", "modules"), MODULES),
    (("build", "backend_modules", "*"), MODULES),
    (("base_images", "reference"), (REFERENCE, "write docker://NAME:TAG or an absolute path")),
    (("runtime", "binds"), BINDS),
    (("runtime", "optional_binds"), BINDS),
    (("build", "tmpdir"), EXPANDED),
    (("build", "cachedir"), EXPANDED),
    (("build", "wrapper_path"), EXPANDED),
    (("launch", "node_local_dirs"), EXPANDED),
    (("network", "proxy", "*"), EXPANDED),
    (("network", "proxy", "*", KEY_ITSELF), NAMED),
    *((("launch", table, "*"), EXPANDED) for table in SETTINGS),
    *((("launch", table, "*", KEY_ITSELF), NAMED) for table in SETTINGS),
    (("launch", "unset"), NAMED),
    (("launch", "master_port"), (PORT, PORTS)),
    (("launch", "master_suffix"), (SUFFIX, "letters, digits, - and . only")),
    (("scheduler", "account_form"), (FORM, "letters, digits, blanks and _.@+<>{}[]|:/- only")),
)
OTHERS: Rule = (PLAIN, "letters, digits and _.,:+=@%/-{} only")


def check_texts(tree: Table) -> Iterator[Finding]:
    """No text of a site may become a command: each is checked against the pattern of its key path."""
    for path, key, text in _list_texts(tree, (), ""):
        rule = _find_rule(path)
        if rule is None:
            plain = text.raw.replace("\n", "") if path[-1] in SEVERAL_LINES else text.raw
            if CONTROL.search(plain):
                yield _make_fault(f"'{key}' holds a control character", key, "remove it; write one line")
        elif not rule[0].fullmatch(text.raw):
            what = "as a key" if path[-1] == KEY_ITSELF else f"in '{key}'"
            yield _make_fault(f"'{sanitize(text.raw)}' is not allowed {what}", key, rule[1])


@cache
def _find_rule(path: tuple[str, ...]) -> Rule | None:
    """Return the pattern for a key path and the message for a mismatch; None: prose."""
    prose, rules = _list_rules_below(path[0])
    if any(_matches_path(path, place) for place in prose):
        return None
    own = next((rule for place, rule in rules if _matches_path(path, place)), None)
    if own is None and path[-1] == KEY_ITSELF:
        return KEY, "use letters, digits and _.- in keys"
    return own or OTHERS


@cache
def _list_rules_below(section: str) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[tuple[str, ...], Rule], ...]]:
    """Return the key paths of prose, and those with a pattern, in one section: a site has hundreds of texts."""
    prose = tuple(place for place in PROSE if place[0] == section)
    return prose, tuple((place, rule) for place, rule in RULES if place[0] == section)


def _matches_path(path: tuple[str, ...], place: tuple[str, ...]) -> bool:
    """Whether a key path matches; "*" is a key of a table, but not of the path itself."""
    return len(path) == len(place) and all(
        word == wanted or (wanted == "*" and word != KEY_ITSELF) for word, wanted in zip(path, place, strict=True)
    )


def _list_texts(value: Value, path: tuple[str, ...], key: str) -> Iterator[tuple[tuple[str, ...], str, Text]]:
    """Every scalar with its path, without and with the places in lists, and every key as a scalar too."""
    if isinstance(value, Text):
        yield path, key, value
    elif isinstance(value, Listing):
        for index, item in enumerate(value.items):
            yield from _list_texts(item, path, f"{key}[{index}]")
    else:
        for name, item in value.entries:
            below = f"{key}.{name.raw}".lstrip(".")
            yield (*path, name.raw, KEY_ITSELF), below, name
            yield from _list_texts(item, (*path, name.raw), below)


def _make_fault(message: str, key: str, fix: str) -> Finding:
    return Finding(code="site-unsafe", message=message, at=Location(key=key), fix=fix)


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
            continue  # `check_texts` has reported other texts
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
        return  # `check_texts` has reported it
    owner = find_reserved_on_host(name)
    if owner is not None:
        message = f"'{sanitize(name)}' cannot be a variable of a site: {owner.why}"
        yield Finding(code="site-variable", message=message, at=Location(key=key), fix=owner.fix)
    elif not SETTING.fullmatch(name):
        message = f"'{sanitize(name)}' cannot be a variable of a site: the scripts have variables in small letters"
        yield Finding(code="site-variable", message=message, at=Location(key=key), fix="begin it with a capital letter")

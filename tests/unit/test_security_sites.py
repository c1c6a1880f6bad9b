"""Site files of strangers: no word of theirs is a command, an option that runs one, or a variable that is obeyed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import names
from support.matrix import EXAMPLES
from support.rows import rows

from builder.compile.compile import compile_plan
from builder.model.finding import ConfigError, UnsupportedError
from builder.model.site import Site
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import BUNDLED, load_site
from builder.parse.site_options import HYDRA, RUNTIME, SLURM, Options
from builder.resolve.driver import apply_driver
from builder.resolve.resolve import resolve

PARENTS = {"srun": "lumi-g", "torchrun": "mn5", "mpiexec": "dawn", "here": "local"}
LISTS = {
    "launch.options": "lumi-g",
    "launch.one_gpu_options": "frontier",
    "runtime.options": "lumi-g",
    "scheduler.submit": "mn5",
}


def site_of(folder: Path, content: dict[str, Any], *, parent: str) -> Site:
    content = {"name": "own", "extends": parent, **content}
    (folder / "own.yaml").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")  # it is YAML too
    return load_site("own", folder=folder)


def below(key: str, value: Any) -> dict[str, Any]:
    """A table with a value at a key such as launch.options."""
    for word in reversed(key.split(".")):
        value = {word: value}
    assert isinstance(value, dict)
    return value


def refused(folder: Path, content: dict[str, Any], *, parent: str) -> list[tuple[str, str]]:
    """Codes and keys of what is said of a site."""
    try:
        site_of(folder, content, parent=parent)
    except ConfigError as error:
        return [(finding.code, finding.at.key if finding.at and finding.fix else "") for finding in error.findings]
    return []


@rows("key", LISTS)
@rows("words", [["/tmp/x/canary.sh"], ["--ok=1", "/tmp/evil.sif", "/bin/sh"], ["--", "x"], ["-"], [""]])
def test_security_09_a_word_without_a_dash_is_no_option(key: str, words: list[str], tmp_path: Path) -> None:
    found = refused(tmp_path, below(key, words), parent=LISTS[key])
    assert found
    assert {code for code, _ in found} == {"site-option"}


PROGRAMS = [
    ("launch.options", "lumi-g", SLURM),
    ("scheduler.submit", "lumi-g", SLURM),
    ("runtime.options", "lumi-g", RUNTIME),
    ("launch.options", "dawn", HYDRA),
]


@rows(("key", "parent", "options"), PROGRAMS, ids=["srun", "sbatch", "runtime", "hydra"])
def test_security_09_options_that_run_something_are_refused(
    key: str, parent: str, options: Options, tmp_path: Path
) -> None:
    dashes = ("--", "-") if options is HYDRA else ("--",)
    words = [f"{dash}{name}{value}" for name in sorted(options.refused) for dash in dashes for value in ("", "=/tmp/x")]
    found = refused(tmp_path, below(key, words), parent=parent)
    assert [code for code, _ in found] == ["site-option"] * len(words)


def test_security_09_slurm_takes_the_beginning_of_a_name_for_the_name(tmp_path: Path) -> None:
    for word in (
        "--task-pro=/x",
        "--task-e=/x",
        "--wra=touch",
        "--bcas=/x",
        "--out=/x",
        "--chd=/x",
        "--get-user",
        "--multi",
    ):
        assert refused(tmp_path, below("launch.options", [word]), parent="lumi-g") == [
            ("site-option", "launch.options[0]")
        ]


@rows("value", ["BASH_ENV=/x", "ALL,LD_PRELOAD=/x", "ALL,PATH=/x", "NONE,RECIPE_IMAGE=/x", "runtime=/x"])
def test_security_09_export_brings_no_variable_along(value: str, tmp_path: Path) -> None:
    job = {"scheduler": {"jobs": {"gpu": {"options": {"export": value}}}}}
    given = [below(key, [f"--export={value}"]) for key in ("scheduler.submit", "launch.options")]
    for content in (*given, job, below("launch.environment.SLURM_EXPORT_ENV", value)):
        assert [code for code, _ in refused(tmp_path, content, parent="lumi-g")] == ["site-variable"]
    assert refused(tmp_path, below("scheduler.submit", ["--export=NONE"]), parent="lumi-g") == []


def test_security_09_job_options_are_looked_at_too(tmp_path: Path) -> None:
    for name in ("wrap", "output", "error", "chdir", "prolog", "get-user-env", "export-file", "job-name", "bcast"):
        content = {"scheduler": {"jobs": {"gpu": {"options": {name: "x"}}}}}
        assert refused(tmp_path, content, parent="lumi-g") == [("site-option", f"scheduler.jobs.gpu.options.{name}")]
    assert refused(tmp_path, below("scheduler.gpu_option", "wrap={gpus}"), parent="mn5")
    assert refused(tmp_path, below("runtime.gpu_flag", "/tmp/evil.sif"), parent="mn5") == [
        ("site-option", "runtime.gpu_flag")
    ]


def test_security_09_useful_options_are_taken(tmp_path: Path) -> None:
    for key, parent, words in (
        (
            "launch.options",
            "lumi-g",
            ["--gpus-per-task=1", "--gpu-bind=closest", "--mpi=pmix", "--wait=60", "-l", "--export=ALL"],
        ),
        ("runtime.options", "lumi-g", ["--bind=/:/host", "--no-home", "--writable-tmpfs", "--cleanenv", "-e", "--ipc"]),
        ("scheduler.submit", "lumi-g", ["--export=NONE", "--exclusive", "--mail-type=NONE", "-v"]),
        ("launch.options", "dawn", ["-prepend-rank", "--iface=ib0", "-bind-to=core", "-l"]),
    ):
        assert refused(tmp_path, below(key, words), parent=parent) == []


ENVIRONMENTS = ("environment", "one_node_environment", "multi_node_environment", "rank_environment")
ON_HOST = [name for name in names.REFUSED if name.startswith(("BASH", "LD_", "COMP_")) or name in (
    "CDPATH", "ENV", "IFS", "OPTIND", "PROMPT_COMMAND", "PS4", "RANDOM", "SHELLOPTS", "SRANDOM", "UID", "GCONV_PATH",
    "GLIBC_TUNABLES", "HOSTALIASES", "APPTAINER_FUSESPEC", "SLURM_TASK_PROLOG", "SLURM_CONF", "SPANK_X", "RECIPE_IMAGE",
    "HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "HOME", "RECIPE_RESULTS",
)]  # fmt: skip
SCRIPTS_OWN = ("runtime", "options", "image", "results", "ranks", "tasks", "python_path", "path", "hosts", "_x")


@rows("table", ENVIRONMENTS)
def test_security_06_a_site_sets_no_variable_that_is_obeyed(table: str, tmp_path: Path) -> None:
    obeyed = (*ON_HOST, *SCRIPTS_OWN, "PATH", "LD_LIBRARY_PATH", "APPTAINERENV_BASH_ENV", "SINGULARITYENV_PS4")
    found = refused(tmp_path, below(f"launch.{table}", dict.fromkeys(obeyed, "/x")), parent="lumi-g")
    assert sorted(found) == sorted(("site-variable", f"launch.{table}.{name}") for name in set(obeyed))
    for name in ("APPTAINERENV_LD_LIBRARY_PATH", "SINGULARITYENV_LD_PRELOAD", "NCCL_NET", "SLURM_EXPORT_ENV", "TMPDIR"):
        assert refused(tmp_path, below(f"launch.{table}.{name}", "ALL"), parent="lumi-g") == []


def test_security_09_a_proxy_sets_variables_of_proxies(tmp_path: Path) -> None:
    for name in ("BASH_ENV", "PATH", "runtime", "PIP_INDEX_URL"):
        assert refused(tmp_path, below(f"network.proxy.{name}", "/x"), parent="lumi-g") == [
            ("site-variable", f"network.proxy.{name}")
        ]
    for name in ("http_proxy", "HTTPS_PROXY", "no_proxy", "all_proxy"):
        assert refused(tmp_path, below(f"network.proxy.{name}", "http://p:1"), parent="lumi-g") == []


@pytest.mark.property
def test_security_09_keys_of_prose_are_prose_at_their_own_depth_only(tmp_path: Path) -> None:
    """`note`, `source`, `model`, `fabric`, `unsure` and the names of tables, as keys of another table."""
    words = ("note", "source", "model", "fabric", "unsure", "account_form", "environment", "proxy", "tmpdir", "modules")
    for word in words:
        for key in (
            f"launch.environment.{word}", f"launch.rank_environment.{word}", f"scheduler.jobs.gpu.options.{word}",
            f"build.backend_modules.{word}", f"build.backend_versions.{word}", f"network.proxy.{word}",
        ):  # fmt: skip
            content = below(key, ["$(touch CANARY)"] if "modules" in key.split(".")[1] else "a $(touch CANARY)")
            found = refused(tmp_path, content, parent="lumi-g")
            assert ("site-unsafe" in {code for code, _ in found}) or ("site-job" in {code for code, _ in found}), key
        content = {"base_images": [{"reference": "docker://a:1", "source": ["own"], "provides": {word: "1 $(x)"}}]}
        assert "site-unsafe" in {code for code, _ in refused(tmp_path, content, parent="lumi-g")}


@rows("form", ["x'; touch CANARY; echo '", "$(touch CANARY)", "`touch CANARY`", 'a"b', "a\\b", "a;b", "a&b"])
def test_security_09_the_form_of_an_account_is_a_form(form: str, tmp_path: Path) -> None:
    assert refused(tmp_path, below("scheduler.account_form", form), parent="lumi-g") == [
        ("site-unsafe", "scheduler.account_form")
    ]


def test_security_09_commands_to_be_copied_are_quoted(tmp_path: Path) -> None:
    site_of(tmp_path, below("scheduler.account_form", "<project> | a[1]"), parent="lumi-g")
    recipe = load_recipe(EXAMPLES / "mnist.yml", shown="mnist.yml")
    plan = compile_plan(resolve(recipe, load_site("own", folder=tmp_path), context=Context(tool="recipe 0.0.0")))
    lines = [
        line for file in plan.files for line in file.text.splitlines() if "--account=" in line and "sbatch" in line
    ]
    assert any(line.startswith("# Submit") for line in lines)
    assert any("`" in line for line in lines)
    for line in lines:
        command = line[line.index("sbatch") :].partition("`")[0]
        assert "--account=<project> | a[1]" in shlex.split(command)


NO_VERSIONS = ("2.x", "abc", "", "1" * 5000, "v6.3", "1!6.3", "٣.٤", "2..3", "-1", "1e3")


@pytest.mark.property
@pytest.mark.parametrize("text", NO_VERSIONS, ids=lambda text: text[:6])
def test_security_18_what_is_no_version_is_a_finding(text: str, tmp_path: Path) -> None:
    for vendor, parent in (("nvidia", "mn5"), ("amd", "lumi-g")):
        content = {"gpu": {"driver": text, "driver_checked": "2026-01-01"}}
        assert refused(tmp_path, content, parent=parent), (vendor, text)
        with pytest.raises((ConfigError, UnsupportedError)):
            apply_driver(load_site(parent), text or "-")
    for key in ("python", "rocm", "cuda", "glibc"):
        image = {"reference": "docker://a:1", "source": ["hands-on"], key: text}
        assert refused(tmp_path, {"base_images": [image]}, parent="mn5"), key
    assert refused(tmp_path, {"gpu": {"cuda_native": text}}, parent="mn5")
    image = {"reference": "docker://a:1", "source": ["hands-on"], "provides": {"torch": text}}
    if text not in ("v6.3", "1!6.3"):  # PEP 440 takes these
        assert refused(tmp_path, {"base_images": [image]}, parent="mn5")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every scalar of a document, in lists too."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def put(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """The document with another text at a path."""
    if not path:
        return text
    if isinstance(value, dict):
        return {name: put(item, path[1:], text) if name == path[0] else item for name, item in value.items()}
    return [put(item, path[1:], text) if index == path[0] else item for index, item in enumerate(value)]


SIGN = "\u2603"  # in no generated file otherwise
PAYLOADS = (
    "$(touch CANARY)", "`touch CANARY`", "'; touch CANARY; '", '"; touch CANARY; "', "a b; c", "%post", "{{ 7 * 7 }}",
    "# x", "$'\\x24(touch CANARY)'", "${HOME}", "|| touch CANARY", "-v /:/host",
)  # fmt: skip


def key_of(path: tuple[Any, ...]) -> str:
    return "".join(f"[{word}]" if isinstance(word, int) else f".{word}" for word in path).lstrip(".")


def everywhere(folder: Path, parent: str, text: str) -> tuple[Site, int]:
    """A site with a text at every place that takes it, and how many these are; what is refused is put back."""
    document = yaml.safe_load((BUNDLED / f"{parent}.yaml").read_text())
    document.pop("extends", None)
    places = [path for path in leaves(document) if path[-1] not in ("source", "checked") and "source" not in path]
    while True:
        whole = document
        for path in places:
            whole = put(whole, path, text)
        (folder / f"{parent}.yaml").write_text(yaml.safe_dump(whole, allow_unicode=True))
        try:
            return load_site(parent, folder=folder), len(places)
        except ConfigError as error:
            keys = [finding.at.key for finding in error.findings if finding.at]
        left = [path for path in places if not any(said(key_of(path), key) for key in keys)]
        assert len(left) < len(places), keys
        places = left


def said(place: str, key: str) -> bool:
    return place == key or (place.startswith(key) and place[len(key)] in ".[")


@pytest.mark.property
@pytest.mark.parametrize("parent", ["dawn", "frontier", "local", "lumi-g", "mn5"])
def test_security_09_no_text_of_a_site_adds_a_line_or_a_word(parent: str, tmp_path: Path) -> None:
    """Every text becomes each payload: refused, or told to people only, or quoted where a shell reads it."""
    recipe = load_recipe(EXAMPLES / "mnist.yml", shown="mnist.yml")
    for payload in PAYLOADS:
        text = SIGN + payload
        site, taken = everywhere(tmp_path, parent, text)
        assert taken >= 4  # title, description, notes
        for backend in site.build.backends:
            try:
                plan = compile_plan(resolve(recipe, site, context=Context(tool="recipe 0.0.0", backend=backend)))
            except (ConfigError, UnsupportedError):
                continue
            for file in plan.files:
                if file.path.endswith((".sh", ".sbatch")) or file.path == "README.md":
                    check(file.path, file.text, text)


def check(path: str, script: str, text: str) -> None:
    """A quoted word holds all of a text: after the quotes are read, it is whole."""
    for line in script.splitlines():
        if path == "README.md":
            line = line[line.find("sbatch") :].partition("`")[0] if "`sbatch" in line else ""
        if SIGN not in line or line.startswith("# "):
            continue
        words = shlex.split(line.strip().rstrip("\\").removesuffix(";;"))
        assert any(text in word or text.replace("$", "\\$") in word for word in words), (path, line)

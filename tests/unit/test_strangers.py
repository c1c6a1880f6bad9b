"""What strangers wrote: nothing of it is replaced in silence, and what a message advises works."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.corrections import apply_edits
from builder.cli.main import run
from builder.cli.output import uses_color
from builder.compile.backends import check_backend
from builder.execute.doctor_network import list_servers
from builder.layers.private_folders import read_limit_bytes
from builder.model.finding import BuilderError, ConfigError, Finding, select_errors
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve
from builder.sif.errors import LayeringError

HEAD = "name: x\nchannels: [conda-forge]\ndependencies:\n"


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def recipe() -> Callable[..., Answer]:
    def call(*words: str) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(words))
        return Answer(code=code, out=out.getvalue(), err=err.getvalue())

    return call


@pytest.fixture
def demo(tmp_path: Path, recipes: Path) -> Path:
    shutil.copy(recipes / "mnist.yml", tmp_path / "mnist.yml")
    return tmp_path


def read(folder: Path, *conda: str, pip: tuple[str, ...] = (), site: str = "local") -> Target:
    lines = [f"  - {one}\n" for one in conda]
    lines += ["  - pip:\n", *(f"    - {one}\n" for one in pip)] if pip else []
    path = folder / "x.yml"
    path.write_text(HEAD + "".join(lines))
    return resolve(load_recipe(path), load_site(site), context=Context())


def faults(folder: Path, *conda: str, pip: tuple[str, ...] = (), site: str = "local") -> tuple[Finding, ...]:
    with pytest.raises(BuilderError) as caught:
        read(folder, *conda, pip=pip, site=site)
    return caught.value.findings


def fixed(folder: Path, finding: Finding) -> str:
    assert finding.edit is not None
    text, made = apply_edits((folder / "x.yml").read_text(), [finding.edit])
    assert made == 1
    return text


@rows("wrong", [
    "three", "3.11t", "3.l1", "3,11", "=3.1O", "3.x", "latest", "3.12.", "3..12", "3.13t.*", ">=3.10,<3.l2",
    "3.10|3.1l",
])  # fmt: skip
def test_a_python_that_is_none_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"python{wrong if wrong[0] in '=<>' else '=' + wrong}", "numpy=2")
    (finding,) = caught.value.findings
    assert (finding.code, finding.at and finding.at.line) == ("conda-version", 4)
    assert finding.fix


@pytest.mark.parametrize(("wrong", "right"), [("3.l1", "3.11"), ("3,11", "3.11"), ("3.1O", "3.10")])
def test_a_slip_in_the_version_of_python_is_corrected(tmp_path: Path, wrong: str, right: str) -> None:
    (finding,) = faults(tmp_path, f"python={wrong}")
    assert f"- python={right}\n" in fixed(tmp_path, finding)


@pytest.mark.parametrize("spec", ["python-freethreading", "python=3.13=*_cp313t", "cpython-freethreading=3.13"])
def test_the_free_threaded_python_is_refused_by_name(tmp_path: Path, spec: str) -> None:
    (finding,) = faults(tmp_path, spec)
    assert "free-threaded" in finding.message


@rows(("spec", "python", "written"), [
    ("python=3.11", "3.11", "python=3.11"),
    ("python=3.14.0rc2", "3.14", "python=3.14.0rc2"),
    ("python=3.11.*", "3.11", "python=3.11.*"),
    ("python=3.10|3.11", "3.11", "python=3.10,3.11.*|==3.11,3.11.*"),
    ("python>=3.9,<3.11", "3.10", "python>=3.9,<3.11,3.10.*"),
])  # fmt: skip
def test_a_python_is_what_was_asked_for(tmp_path: Path, spec: str, python: str, written: str) -> None:
    target = read(tmp_path, spec, "samtools", pip=("torch",))
    found = next(text for text in target.environment.conda if text.startswith("python"))
    assert target.environment.python == python
    assert found.replace(" ", "") == written.replace(" ", "")


@rows(("written", "meant"), [
    ("pytorch==2.8.0", "torch"), ("sklearn", "scikit-learn"), ("cv2", "opencv-python"), ("PIL", "pillow"),
    ("yaml==6.0", "pyyaml"), ("opencv==4.10.0", "opencv-python"),
])  # fmt: skip
def test_the_name_that_python_imports_is_corrected(tmp_path: Path, written: str, meant: str) -> None:
    (finding,) = select_errors(faults(tmp_path, "python=3.12", pip=(written,)))
    assert (finding.code, finding.fix) == ("name-import", f"write {meant}")
    (tmp_path / "x.yml").write_text(fixed(tmp_path, finding))
    assert resolve(load_recipe(tmp_path / "x.yml"), load_site("local"), context=Context()) is not None


@pytest.mark.parametrize("written", ["bs4", "imblearn", "dotenv"])
def test_a_name_of_another_package_is_a_warning(tmp_path: Path, written: str) -> None:
    found = read(tmp_path, "python=3.12", pip=(f"{written}==1.0",)).findings
    assert [(one.code, one.level) for one in found if one.level != "note"] == [("name-import", "warning")]


def test_an_index_of_ones_own_may_have_any_name(tmp_path: Path) -> None:
    found = read(tmp_path, "python=3.12", pip=("--extra-index-url https://example.org/simple", "sklearn==1.0")).findings
    assert [one.level for one in found if one.code == "name-import"] == ["warning"]


@rows(("pip", "torch"), [
    (('torch==2.8.0; python_version<"3.9"',), ()),
    (('torch==2.8.0; python_version>="3.9"',), ("torch==2.8.0+cpu",)),
    (('torch==2.2.0; python_version<"3.9"', 'torch==2.8.0; python_version>="3.9"'), ("torch==2.8.0+cpu",)),
    (('torch==2.8.0; python_full_version<"3.9.7"',), ()),
    (('timm==1.0.0; python_version<"3.9"',), ()),
])  # fmt: skip
def test_a_marker_on_torch_is_judged_with_the_images_python(
    tmp_path: Path, pip: tuple[str, ...], torch: tuple[str, ...]
) -> None:
    target = read(tmp_path, "python=3.12", pip=(*(f"'{line}'" for line in pip), "numpy==2.2.6"))
    assert target.environment.torch_lines == torch
    assert "numpy==2.2.6" in target.environment.pip_lines
    told = [package.asked for package in target.packages if package.became == "-"]
    assert len(told) == len(pip) - len(torch)


def test_doctor_reads_references_as_the_builder_does() -> None:
    found = list_servers(load_site("lumi-c"), environment={"UV_DEFAULT_INDEX": "https://index.example/simple"})
    assert "https://registry-1.docker.io/v2/" in found.values()
    assert not any(":24" in url for url in found.values()), json.dumps(found)


def test_a_torch_is_proposed_that_has_wheels_for_the_python(tmp_path: Path) -> None:
    for site in ("lumi-g", "mn5", "local", "dawn"):
        (first, *_) = faults(tmp_path, "python=3.13", pip=("torch==2.99",), site=site)
        proposed = first.fix.removeprefix("use torch ").split(" to ")[0]
        read(tmp_path, "python=3.13", pip=(f"torch=={proposed}",), site=site)


def test_a_request_that_contradicts_itself_says_so(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, "python=3.12", pip=("'torch>=2.9,<2.7'",))
    assert "contradicts itself" in finding.message


@pytest.mark.parametrize("output", [".", "/", "..", "d", "d/"])
def test_a_folder_as_an_output_is_refused_in_words(
    recipe: Callable[..., Answer], demo: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo)
    (demo / "d").mkdir()
    for more in ((), ("--force",)):
        answer = recipe("build", "-n", "local", "mnist.yml", "-o", output, *more)
        assert (answer.code, "is a folder" in answer.err, "--force" in answer.err) == (2, True, False), answer.err


@rows("words", [
    ("build", "-n", "local", "mnist.yml", "-o", ""), ("plan", "local", "mnist.yml", "-o", ""), ("inspect", ""),
    ("check", ""), ("check", "local", ""), ("diff", "", ""), ("report", ""), ("status", ""), ("convert", "mn5", ""),
    ("init", "-o", ""), ("build", "-n", "local", "mnist.yml", "--tmpdir", ""), ("inspect", "mnist.yml", "--sbom", ""),
])  # fmt: skip
def test_an_empty_path_is_named_as_such(
    recipe: Callable[..., Answer], demo: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo)
    answer = recipe(*words)
    assert (answer.code, "empty" in answer.err, "'.'" in answer.err) == (2, True, False), answer.err


@pytest.mark.parametrize("more", [(), ("--force",)])
@pytest.mark.parametrize("output", ["mnist.yml", "site.yaml", "mnist.lock", "requirements.txt", "base.sif"])
def test_what_a_build_reads_is_never_replaced(
    recipe: Callable[..., Answer], demo: Path, output: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo)
    if output != "mnist.yml":
        (demo / output).write_text("mine")
    base = ("--base", "base.sif") if output == "base.sif" else ()
    before = (demo / output).read_text()
    answer = recipe("build", "-n", "local", "mnist.yml", "-o", output, *base, *more)
    assert (answer.code, "never replaced" in answer.err, "--force" in answer.err) == (2, True, False), answer.err
    assert (demo / output).read_text() == before


def test_a_folder_that_is_no_image_is_none(recipe: Callable[..., Answer], tmp_path: Path) -> None:
    one, two, image = tmp_path / "a.plan", tmp_path / "b.plan", tmp_path / "rootfs"
    for folder in (one, two, image / "usr" / "bin"):
        folder.mkdir(parents=True)
    for words in (("diff", str(one), str(two)), ("diff", str(image), str(two), "--json"), ("inspect", str(one))):
        answer = recipe(*words)
        assert (answer.code, bool(answer.out)) == (2, "--json" in words), words
        assert "not an image" in answer.err
    assert recipe("inspect", str(image)).code == 0


def test_looking_at_the_cache_makes_nothing(
    recipe: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECIPE_CACHE_DIR", "rel")
    for word in ("ls", "check", "verify", "prune"):
        assert recipe("cache", word).code == 0
        assert list(tmp_path.iterdir()) == []


@rows("said", ["lots", "inf", "nan", "-1", "1e400", "40GB"])
def test_a_limit_of_the_cache_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(LayeringError) as caught:
        read_limit_bytes({"RECIPE_CACHE_GIB": said})
    assert said in str(caught.value)
    assert read_limit_bytes({"RECIPE_CACHE_GIB": "1.5"}) == 3 * 2**29
    assert read_limit_bytes({}) == read_limit_bytes({"RECIPE_CACHE_GIB": ""}) == 40 * 2**30


def test_the_faulty_file_of_another_site_is_a_warning(
    recipe: Callable[..., Answer], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = demo / "sites"
    sites.mkdir()
    (sites / "broken.yaml").write_text("name: broken\nextends: local\nfoo: 1\n")
    monkeypatch.setenv("RECIPE_SITES", str(sites))
    every = recipe("check", str(demo / "mnist.yml"))
    assert (every.code, "warning[" in every.err, "error[" in every.err) == (0, True, False), every.err
    assert "broken.yaml:3" in every.err
    assert recipe("check", "local", str(demo / "mnist.yml")).code == 0
    assert recipe("check", "broken", str(demo / "mnist.yml")).code == 2


@pytest.mark.parametrize(("text", "line", "said"), [
    ("name: x\n<<<<<<< HEAD\ndependencies:\n  - numpy\n=======\n  - scipy\n>>>>>>> other\n", 2, "git"),
    ("name: x\ndependencies:\n\u00a0\u00a0- numpy\n", 3, "no-break space"),
    ("name: x\ndependencies:\n  - \u00a0numpy\n", 3, "no-break space"),
])  # fmt: skip
def test_what_came_from_elsewhere_into_a_file_is_named(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = tmp_path / "x.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    (finding,) = caught.value.findings
    assert (finding.at and finding.at.line, said in finding.message, bool(finding.fix)) == (line, True, True)


@rows("word", ["-", "https://example.org/x.yml", "github:a/b", "git@github.com:a/b.txt"])
def test_an_address_is_no_file(tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_recipe(Path(word))
    assert "is no file" in caught.value.findings[0].message


def test_a_link_to_nothing_is_not_proposed_again(tmp_path: Path) -> None:
    (tmp_path / "x.yml").symlink_to("nowhere.yml")
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "x.yml")
    assert "link to nothing" in caught.value.findings[0].fix
    assert "did you mean" not in caught.value.findings[0].fix


@rows(("written", "right"), [
    ("rocm", "[amd]"), ("cuda", "[nvidia]"), ("[cuda, cpu]", "[nvidia, cpu]"), ("[cuda, rocm]", "[nvidia, amd]"),
])  # fmt: skip
def test_a_vendor_by_its_software_is_corrected(tmp_path: Path, written: str, right: str) -> None:
    path = tmp_path / "x.yml"
    path.write_text(f"{HEAD}  - python=3.12\ncontainer:\n  gpu: {written}\n")
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    text = fixed(tmp_path, caught.value.findings[0])
    assert f"  gpu: {right}\n" in text
    path.write_text(text)
    load_recipe(path)


@rows("site", ["lumi-g", "lumi-c", "dawn", "frontier", "local", "mn5"])
def test_a_fix_names_only_backends_that_the_site_has(tmp_path: Path, site: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text("[project]\nname='mine'\n")
    loaded = load_site(site)
    for backend in loaded.build.backends:
        path = tmp_path / "x.yml"
        path.write_text(f"{HEAD}  - python=3.12\n  - pip: [./mine]\ncontainer:\n  files: {{x.yml: /opt/x.yml}}\n")
        found: list[Finding] = []
        for file in (path, tmp_path / "r.txt"):
            (tmp_path / "r.txt").write_text("./mine\n")
            with contextlib.suppress(BuilderError):
                found += check_backend(resolve(load_recipe(file), loaded, context=Context(backend=backend)))
            try:
                resolve(load_recipe(file), loaded, context=Context(backend=backend))
            except BuilderError as error:
                found += error.findings
        named = {word for one in found for word in re.findall(r"--backend (\w+)", one.fix)}
        assert named <= set(loaded.build.backends) - {backend}, (site, backend, named)


def test_a_dumb_terminal_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    with contextlib.redirect_stderr(Screen()):
        monkeypatch.setenv("TERM", "xterm")
        assert uses_color()
        monkeypatch.setenv("TERM", "dumb")
        assert not uses_color()


def test_a_build_of_its_own_index_is_looked_for_there(tmp_path: Path) -> None:
    """vLLM's builds for ROCm are rocmNNN of its own index, for one Python."""
    other = read(tmp_path, "python=3.12", pip=("vllm==0.10.0+rocm630",), site="lumi-g")
    (finding,) = (one for one in other.findings if one.code == "torch-pin")
    assert "+rocm6.4" not in finding.fix
    assert "https://wheels.vllm.ai/rocm/" in finding.fix
    assert finding.fix.endswith("NNN is that of ROCm 6.4, as torch's")
    right = read(tmp_path, "python=3.12", pip=("vllm==0.10.0+rocm641",), site="lumi-g")
    assert not [one for one in right.findings if one.code in ("torch-pin", "default-wheel")]
    late = faults(tmp_path, "python=3.13", pip=("vllm==0.10.0+rocm641",), site="lumi-g")
    (finding,) = (one for one in late if one.code == "default-wheel")
    assert "has wheels for Python 3.12 only, and the environment has Python 3.13" in finding.message
    assert finding.fix.startswith("write python=3.12")


def test_a_known_build_is_named(tmp_path: Path) -> None:
    found = faults(tmp_path, "python=3.12", pip=("xformers==0.0.30",), site="lumi-g")
    (finding,) = (one for one in found if one.code == "default-wheel")
    assert finding.fix == "write xformers==0.0.30+rocm6.3"

"""Lines of pip requirements: what pip would read, and what no line of a recipe may hold."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from support.rows import rows

from builder.model.finding import ConfigError, Location
from builder.model.recipe import PipRequirement
from builder.parse.recipe import load_recipe
from builder.parse.requirements_txt import Option, RequirementsReader, join_logical_lines, parse_line

AT = Location(file="requirements.txt", line=3)


def requirement(text: str) -> PipRequirement:
    found = parse_line(text, at=AT)
    assert isinstance(found, PipRequirement)
    return found


@rows(
    ("text", "lines"),
    [
        ("a\nb\n", [(1, "a"), (2, "b")]),
        ("a\r\nb\rc", [(1, "a"), (2, "b"), (3, "c")]),
        ("# a\n\n  b  # c\n", [(3, "b")]),
        ("a \\\n  --hash=x \\\n  --hash=y\nb", [(1, "a   --hash=x   --hash=y"), (4, "b")]),
        ("a \\\n# note\nb", [(1, "a"), (3, "b")]),
        ("# note \\\nb", [(2, "b")]),
        ("a#egg=b", [(1, "a#egg=b")]),
        ("a \\", [(1, "a")]),
        ("", []),
    ],
)
def test_logical_lines(text: str, lines: list[tuple[int, str]]) -> None:
    assert list(join_logical_lines(text)) == lines


def test_a_long_run_of_spaces_is_read_in_linear_time() -> None:
    assert list(join_logical_lines("a" + " " * 500_000 + "b")) == [(1, "a" + " " * 500_000 + "b")]


@rows(
    ("text", "name", "specifier", "written"),
    [
        ("numpy", "numpy", "", "numpy"),
        ("Jinja2==3.1.5", "jinja2", "==3.1.5", "Jinja2==3.1.5"),
        ("typing_extensions>=4", "typing-extensions", ">=4", "typing_extensions>=4"),
        ("torch==2.6.0+rocm6.2.4", "torch", "==2.6.0+rocm6.2.4", "torch==2.6.0+rocm6.2.4"),
        ("numpy >= 1.26 , < 2", "numpy", ">=1.26,<2", "numpy>=1.26,<2"),
        ("numpy (>=1.26)", "numpy", ">=1.26", "numpy>=1.26"),
        ("numpy==1.26.*", "numpy", "==1.26.*", "numpy==1.26.*"),
        ("numpy~=1.26,!=1.26.1", "numpy", "~=1.26,!=1.26.1", "numpy~=1.26,!=1.26.1"),
        ("numpy===1.26.0", "numpy", "===1.26.0", "numpy===1.26.0"),
        ("numpy==1,", "numpy", "==1", "numpy==1"),
        ("x==1!2.0", "x", "==1!2.0", "x==1!2.0"),
        ("uvicorn[standard,x]~=0.30", "uvicorn", "~=0.30", "uvicorn[standard,x]~=0.30"),
        ("uvicorn [standard] ~= 0.30", "uvicorn", "~=0.30", "uvicorn[standard]~=0.30"),
    ],
)
def test_names_and_versions(text: str, name: str, specifier: str, written: str) -> None:
    found = requirement(text)
    assert (found.name, found.specifier, found.text, found.line) == (name, specifier, written, 3)
    assert requirement(found.text) == found


def test_markers() -> None:
    found = requirement("numpy<2;python_version<'3.9' and (sys_platform=='linux' or os_name != 'nt')")
    assert found.marker == 'python_version < "3.9" and (sys_platform == "linux" or os_name != "nt")'
    assert found.text == f"numpy<2 ; {found.marker}"
    assert found.specifier == "<2"


@rows(
    ("text", "name", "url"),
    [
        ("trl @ https://example.org/trl-1.0.tar.gz", "trl", "https://example.org/trl-1.0.tar.gz"),
        ("trl@git+https://github.com/a/trl", "trl", "git+https://github.com/a/trl"),
        ("https://example.org/flash_attn-2.5.8-py3-none-any.whl", "flash-attn", None),
        ("https://example.org/torch-2.6.0%2Brocm6.2-cp312-cp312-linux_x86_64.whl", "torch", None),
        ("https://example.org/strange.whl", "", None),
        ("git+https://github.com/a/b.git@v1#egg=My_Pkg&subdirectory=x", "my-pkg", None),
        ("git+ssh://git@github.com/a/b.git", "", None),
        ("./pkg", "", "./pkg"),
        ("wheels/numpy-1.26.4-cp312-cp312-linux_x86_64.whl", "numpy", None),
        ("/abs/pkg.tar.gz", "", None),
        (".", "", "."),
    ],
)
def test_addresses_and_paths(text: str, name: str, url: str | None) -> None:
    found = requirement(text)
    assert (found.name, found.url) == (name, url or text)


def test_extras_of_a_path() -> None:
    found = requirement("./pkg[dev, test]")
    assert (found.url, found.extras, found.text) == ("./pkg", ("dev", "test"), "./pkg[dev,test]")


@rows(
    ("text", "options"),
    [
        ("-i https://example.org/s", [("index-url", "https://example.org/s")]),
        ("-ihttps://example.org/s", [("index-url", "https://example.org/s")]),
        ("--index-url=https://example.org/s", [("index-url", "https://example.org/s")]),
        ("--index-url 'https://example.org/s'", [("index-url", "https://example.org/s")]),
        ("--pre --prefer-binary", [("pre", ""), ("prefer-binary", "")]),
        ("-r a.txt", [("requirement", "a.txt")]),
        ("-ra.txt", [("requirement", "a.txt")]),
        ("--requirement=a/b.txt -c c.txt", [("requirement", "a/b.txt"), ("constraint", "c.txt")]),
        ("-e .", [("editable", ".")]),
        ('-e ".[dev]"', [("editable", ".[dev]")]),
        ("--editable=git+https://github.com/a/b#egg=b", [("editable", "git+https://github.com/a/b#egg=b")]),
        ("-f wheels --no-index", [("find-links", "wheels"), ("no-index", "")]),
        ("--trusted-host a.example.org:80", [("trusted-host", "a.example.org:80")]),
        ("--no-binary=:all: --only-binary a,B_c", [("no-binary", ":all:"), ("only-binary", "a,B_c")]),
        ("--require-hashes", [("require-hashes", "")]),
    ],
)
def test_options(text: str, options: list[tuple[str, str]]) -> None:
    assert parse_line(text, at=AT) == tuple(Option(name=name, value=value) for name, value in options)


@rows(
    "text",
    ["-", "--", "-x", "-r", "-e", "--no-such", "--pre=1", "-i", "-i --pre", "-i https://u:p@example.org/s", "-i s3://b",
     "-i https://example.org/$(id)", "-i 'https://example.org/\"x'", "-r https://example.org/r.txt", "-r 'a b.txt'",
     "-r ~/r.txt", "-r $HOME/r.txt", "-c a;b", "-f ~/wheels", "-r -x", "--trusted-host -x",
     "--trusted-host 'a b'", "--no-binary a;b", "-U numpy",
     "--user", "numpy --upgrade", "numpy --hash=sha256:1", "numpy --hash", "numpy -r x", "numpy --config-settings a=b",
     "numpy 1.26", "numpy=1.26", "numpy==", "numpy==1.26=py_0", "numpy>=1.26 pandas", "numpy[", "numpy[a",
     "numpy; python", "numpy; python_version", "numpy; extra == '$(id)'", "numpy; os_name == '`id`'", "numpy === $(id)",
     "numpy ; os_name == '{{ x }}'", "numpy @ ", "numpy @ $(id)", "numpy @ https://example.org/;id", "numpy\x00",
     "numpy\x1b", "conda-forge::numpy", "./a b",
     "numpy\x85", "numpy\u2028id", "nümpy", "$NUMPY", "{numpy}", "numpy && id", "numpy | id", "numpy > x", "`id`",
     "a\\b", "./$(id)", "https://example.org/a b.whl", "git+https://tok@github.com/a/b",
     "git+https://u:p@github.com/a/b", "ftp://example.org/a.whl", "ssh://git@example.org/x", "git@github.com:a/b.git",
     "'numpy'", '"numpy"', "numpy: 1.26", "- numpy", "name: x", "pkg @ file:///x ; y"],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_line(text, at=AT)
    (finding,) = caught.value.findings
    assert finding.at == AT
    assert finding.message
    assert finding.fix


def test_secrets_are_not_repeated_in_messages() -> None:
    for text in (
        "-i https://me:hunter2@example.org/s",
        "a @ https://hunter2@example.org/ö",
        "a b @ https://hunter2@x/",
    ):
        with pytest.raises(ConfigError) as caught:
            parse_line(text, at=AT)
        assert "hunter2" not in str(caught.value)


def test_files_are_found_beside_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("-r b.txt\n-r ../c.txt\n")
    (tmp_path / "sub" / "b.txt").write_text("bee\n")
    (tmp_path / "c.txt").write_text("cee\n-r sub/b.txt\n")
    reader = RequirementsReader(file="recipe.txt", folder=tmp_path)
    reader.add_text("-r sub/a.txt", at=Location(file="recipe.txt", line=1), base=tmp_path)
    assert reader.findings == []
    assert [(item.name, item.file) for item in reader.requirements] == [
        ("bee", "sub/b.txt"),
        ("cee", "sub/../c.txt"),
    ]
    assert reader.texts == ["-r b.txt\n-r ../c.txt\n", "bee\n", "cee\n-r sub/b.txt\n"]


def test_requirements_of_a_constraint_file_stay_constraints(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("-r d.txt\nnumpy<2\n")
    (tmp_path / "d.txt").write_text("scipy<2\n")
    reader = RequirementsReader(file="recipe.txt", folder=tmp_path)
    reader.add_text("numpy\n-c c.txt", at=Location(file="recipe.txt", line=1), base=tmp_path)
    assert [item.name for item in reader.requirements] == ["numpy"]
    assert [item.name for item in reader.make_options().constraints] == ["scipy", "numpy"]


def test_find_links_stand_beside_the_file_or_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "sub" / "wheels").mkdir(parents=True)
    (tmp_path / "more").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("-f wheels\n-f more\n-f https://example.org/x.html\n-f nowhere\n")
    reader = RequirementsReader(file="recipe.txt", folder=tmp_path)
    reader.add_text("-r sub/a.txt", at=Location(file="recipe.txt", line=1), base=tmp_path)
    assert reader.make_options().find_links == ("sub/wheels", "more", "https://example.org/x.html")
    assert [finding.message for finding in reader.findings] == ["there is no 'nowhere' on this machine"]


def test_the_last_index_url_holds(tmp_path: Path) -> None:
    reader = RequirementsReader(file="recipe.txt", folder=tmp_path)
    lines = "-i https://a.example.org/s\n--extra-index-url https://b.example.org/s\n-i https://c.example.org/s"
    reader.add_text(lines, at=Location(file="recipe.txt", line=1), base=tmp_path)
    assert reader.make_options().index_url == "https://c.example.org/s"
    assert reader.make_options().extra_index_urls == ("https://b.example.org/s",)


@rows(
    "line",
    [
        "root:$6$S3CRET:19000::",
        "password = S3CRET",
        "-r S3CRET.txt",
        "--S3CRET",
        "x @ https://me:S3CRET@h/x",
        "S3CRET/x",
    ],
)
@rows("kind", ["-r", "-c"])
def test_security_20_no_line_of_a_file_outside_the_recipes_folder_is_shown(
    tmp_path: Path, line: str, kind: str
) -> None:
    """Whoever wrote the recipe chose the file, and could read an answer that the user posts."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret").write_text(f"# S3CRET\n{line}\n")
    (home / "link.txt").symlink_to(tmp_path / "secret")
    for name in ("../secret", str(tmp_path / "secret"), "link.txt"):
        recipe = home / "requirements.txt"
        recipe.write_text(f"six\n{kind} {name}\n")
        with pytest.raises(ConfigError) as caught:
            load_recipe(recipe)
        for finding in caught.value.findings:
            assert "S3CRET" not in repr(finding)
            assert "not in the recipe's folder" in finding.message
            assert finding.at is not None
            assert finding.at.line == 2


@rows(
    "line, written",
    [
        ("pk @ file://{}/pkg", "./pkg"),
        ("pk @ file://{}/up/other", "{}/up/other"),
        ("-e file://{}/pkg", "./pkg"),
    ],
)
def test_a_folder_is_named_by_its_path_not_by_an_address(line: str, written: str, tmp_path: Path) -> None:
    here = tmp_path / "here"
    for folder in (here / "pkg", here.parent / "up/other"):
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").touch()
    top = tmp_path if "up/" in line else here
    (here / "requirements.txt").write_text(line.format(top) + "\n")
    with pytest.raises(ConfigError) as caught:
        load_recipe(here / "requirements.txt")
    (finding,) = caught.value.findings
    assert (finding.code, f"write '{written.format(top)}' alone" in finding.fix) == ("pip-path", True)
    (here / "requirements.txt").write_text(written.format(top) + "\n")
    assert [kept.url for kept in load_recipe(here / "requirements.txt").pip] == [written.format(top)]


def test_a_wheel_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    wheel, file = tmp_path / "six-1.16.0-py2.py3-none-any.whl", tmp_path / "r.txt"
    file.write_text(f"./{wheel.name}\n")
    with ZipFile(wheel, "w") as archive:
        archive.writestr("six.py", "x = 1\n")
    assert load_recipe(file, shown="r.txt").warnings == ()
    wheel.write_bytes(wheel.read_bytes()[:-30])
    (finding,) = load_recipe(file, shown="r.txt").warnings
    assert (finding.code, finding.level) == ("file-source", "error")
    assert finding.message.startswith(f"the wheel './{wheel.name}' is damaged")


@rows(
    ("lines", "line"),
    [
        ("--no-binary own\n./own-1-py3-none-any.whl\n", 2),
        ("./own-1-py3-none-any.whl\n--no-binary :all:\n", 2),
        ("own @ https://h.example/own-1-py3-none-any.whl\n--no-binary six,Own\n", 2),
        ("--no-binary six\n./own-1-py3-none-any.whl\n", 0),
        ("--no-binary :none:\n./own-1-py3-none-any.whl\n", 0),
    ],
)
def test_a_wheel_by_its_place_has_no_sources(tmp_path: Path, lines: str, line: int) -> None:
    with ZipFile(tmp_path / "own-1-py3-none-any.whl", "w") as archive:
        archive.writestr("own-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (tmp_path / "a.txt").write_text(lines)
    if not line:
        assert load_recipe(tmp_path / "a.txt").pip
        return
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "a.txt")
    (finding,) = caught.value.findings
    assert (finding.code, finding.at and finding.at.line) == ("pip-option", line)
    assert "'--no-binary' asks for the sources of 'own'" in finding.message

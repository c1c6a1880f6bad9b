"""Conda environments as layers: what lies where, what names it, what is refused. Linking itself: tests/engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.rows import rows

from builder.layers.conda_client import _make_layering_error, read_packages
from builder.layers.conda_layers import _find_python, collect_dependencies
from builder.layers.conda_packages import (
    DIST,
    LARGE,
    MANY,
    MOST,
    SCRIPT,
    SHARES,
    LayerContents,
    check_conflicts,
    find_shared_paths,
    group_packages,
    remove_package,
)
from builder.layers.conda_solver import CondaPackage, list_virtual_packages, solve_request
from builder.sif.errors import LayeringError


def package(name: str, *depends: str, size: int = 0, build: str = "0", url: str = "") -> CondaPackage:
    url = url or f"https://host/t/secret/channel/linux-64/{name}-1.0-{build}.conda"
    return CondaPackage(
        name=name, version="1.0", build=build, subdir="linux-64", url=url, sha256="b" * 64, size=size, depends=depends
    )


def names(groups: dict[str, tuple[CondaPackage, ...]]) -> dict[str, list[str]]:
    return {title: [one.name for one in rows] for title, rows in groups.items()}


def test_large_packages_lie_apart_and_python_never_does() -> None:
    packages = [package("python", size=LARGE + 1), package("mkl", size=LARGE), package("zlib", size=1)]
    groups = names(group_packages(packages))
    assert groups == {"conda mkl": ["mkl"], "conda": ["python", "zlib"]}
    assert list(groups) == ["conda mkl", "conda"]  # the last lies over the others


def test_so_many_layers_of_one_package_and_no_more() -> None:
    packages = [package("python"), *(package(f"big-{number:02}", size=LARGE + number) for number in range(MOST + 3))]
    groups = names(group_packages(packages))
    assert (
        sum(rows[0].startswith("big") and len(rows) == 1 and "share" not in title for title, rows in groups.items())
        == MOST
    )
    assert not {"conda big-00", "conda big-01", "conda big-02"} & groups.keys()


def test_many_packages_lie_in_shares_that_stay_when_one_is_added() -> None:
    packages = [package("python"), *(package(f"p-{number:03}", size=MANY // 60) for number in range(64))]
    groups = names(group_packages(packages))
    assert (len(groups), list(groups)[-1]) == (SHARES, "conda")
    assert "python" in groups["conda"]
    assert sorted(name for rows in groups.values() for name in rows) == sorted(one.name for one in packages)
    assert max(len(rows) for rows in groups.values()) < 64 / 3
    more = names(group_packages([*packages, package("new", size=1)]))
    assert sum(more[title] != groups[title] for title in groups) == 1
    assert len(group_packages(packages[:40])) == 1


def test_packages_that_share_file_names_get_a_layer_of_their_own() -> None:
    packages = [package("python"), package("mkl", size=LARGE), package("blas"), package("zlib")]
    groups = names(group_packages(packages, together=["mkl", "blas"]))
    assert groups == {"conda, together": ["blas", "mkl"], "conda": ["python", "zlib"]}


@rows(
    ("layers", "paths"),
    [
        ((("/a/b", "/c"), ("/a/d", "/e/f/g")), set()),
        ((("/a/b", "/c"), ("/a/d", "/c")), {"/c"}),
        ((("/a/b", "/c"), ("/c/d/e", "/f")), {"/c", "/c/d/e"}),
        ((("/c/d/e",), ("/f", "/c"), ("/cd",)), {"/c", "/c/d/e"}),
    ],
)
def test_a_file_of_two_packages_or_a_folder_in_one_is_found(
    layers: tuple[tuple[str, ...], ...], paths: set[str]
) -> None:
    assert find_shared_paths([LayerContents(paths=one) for one in layers]) == paths


def test_what_python_needs() -> None:
    packages = [
        package("python", "libffi >=3", "__glibc >=2.17"),
        package("libffi", "libc"),
        package("libc"),
        package("x"),
    ]
    assert [one.name for one in collect_dependencies(packages[0], packages)] == ["libc", "libffi", "python"]


def test_no_token_and_no_folder_of_this_machine_names_a_layer() -> None:
    assert package("x").address == "https://host/channel/linux-64/x-1.0-0.conda"
    local = package("x", url="file:///home/me/channel/linux-64/x-1.0-0.conda")
    assert local.address == "file:///mnt/conda/linux-64/x-1.0-0.conda"
    assert "me" not in json.dumps(local.inputs)


def test_a_package_without_sha256_is_refused() -> None:
    with pytest.raises(LayeringError, match=r"no sha256 for 'x' 1\.0"):
        read_packages([{**vars(package("x")), "sha256": ""}])


@pytest.mark.parametrize("build", ["0_73_pypy", "h1_2_cp313t"])
def test_another_python_than_cpython_is_refused(build: str) -> None:
    with pytest.raises(LayeringError, match="is not an ordinary CPython"):
        _find_python([package("python", build=build)])
    with pytest.raises(LayeringError, match="has no Python"):
        _find_python([package("x")])


def test_the_site_is_what_the_solver_sees() -> None:
    found = list_virtual_packages(machine="aarch64", glibc="2.28", cuda="")
    assert found == ("__archspec=1=aarch64", "__glibc=2.28=0", "__linux=0=0", "__unix=0=0")
    assert "__cuda=12.4=0" in list_virtual_packages(machine="x86_64", glibc="2.28", cuda="12.4")


@pytest.mark.parametrize(
    ("channels", "alias", "place"),
    [
        (["conda-forge", "nodefaults"], "https://mirror.example", "cache"),
        (["https://host/t/S3CRET/channel"], "", "work"),
        (["conda-forge"], "https://host/t/S3CRET", "work"),
    ],
)
def test_lists_of_a_private_channel_are_not_kept(channels: list[str], alias: str, place: str) -> None:
    request = solve_request(
        channels=channels, specs=["python"], virtual=(), platform="linux-64", cache=Path("/cache"), work=Path("/work"),
        alias=alias, offline=False,
    )  # fmt: skip
    assert request["cache"] == f"/{place}/repodata"
    assert request["channels"] == [channel for channel in channels if channel != "nodefaults"]


@rows(
    ("kind", "text", "fix"),
    [
        ("SolverError", "nothing provides x", "loosen a version"),
        ("InstallerError", "Caused by: hash mismatch when extracting http://h/x.conda to y", "lock again"),
        ("InstallerError", "error sending request for url (http://h/x.conda)", "can be reached"),
        ("GatewayError", "404 Not Found", "check the names"),
    ],
)
def test_what_to_do_about_a_failure(kind: str, text: str, fix: str) -> None:
    assert fix in _make_layering_error(kind, text, what="no").fix


@rows(
    ("path", "found"),
    [
        ("/lib/python3.12/site-packages/my_dist-1.2.dist-info", ("my_dist", "1.2")),
        ("/lib/python3.12/site-packages/my_dist-1.2-py3.12.egg-info", ("my_dist", "1.2")),
        ("/lib/python3.12/site-packages/my_dist-1.2.dist-info/METADATA", None),
        ("/share/my_dist-1.2.dist-info", None),
    ],
)
def test_distributions_are_known_by_their_folders(path: str, found: tuple[str, str] | None) -> None:
    match = DIST.fullmatch(path)
    assert (match and (match[1], match[2])) == found
    assert SCRIPT.fullmatch("/bin/.gdk-pixbuf-post-link.sh")[1] == "gdk-pixbuf"  # type: ignore[index]


def test_a_file_where_another_package_has_a_folder_is_refused() -> None:
    check_conflicts({"one": ["share/x/a", "share/y"], "two": ["share/x/a", "share/x/b"]})
    with pytest.raises(LayeringError, match="'share/x' is a folder of the package 'one' and a file of 'two'"):
        check_conflicts({"one": ["share/x/a"], "two": ["__clobbers__/two/share/x"]})


def test_a_package_taken_out_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    one = package("one")
    for name in ("lib/one/a", "lib/b", "lib/other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "conda-meta").mkdir()
    record = tmp_path / "conda-meta" / "one-1.0-0.json"
    record.write_text(json.dumps({"files": ["lib/one/a", "lib/b"]}))
    remove_package(one, tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["conda-meta", "lib", "lib/other"]
    with pytest.raises(LayeringError, match="is not the package that its channel names"):
        remove_package(one, tmp_path)

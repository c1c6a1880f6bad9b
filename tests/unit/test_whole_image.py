"""An image that ends before its end is built again from its own environment file alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.paths import suggest_whole_image
from builder.parse.recipe import load_recipe

TEXT = "name: {name}\ndependencies: [python=3.12]\n"


def record(folder: Path, image: str, *, recipe: str, digest: str = "0" * 64) -> None:
    place = folder / image.replace(".sif", ".plan") / "image"
    place.mkdir(parents=True)
    (place / "recipe.json").write_text(json.dumps({"recipe": recipe, "digest": digest, "site": "lumi-g"}))


@rows(
    ("image", "recipe", "files", "named"),
    [
        ("small-local.sif", "small", ["other.yml"], ""),
        ("small-local.sif", "", ["other.yml"], ""),
        ("other.sif", "small", ["other.yml"], ""),
        ("small.sif", "small", ["other.yml", "small.yml"], "lumi-g small.yml"),
        ("any.sif", "small", ["other.yml", "small.yml"], "lumi-g small.yml"),
        ("small.sif", "", ["other.yml", "small.yml"], "local small.yml"),
        ("small-mn5.sif", "", ["other.yml", "small.yml"], "mn5 small.yml"),
        ("small-other.sif", "", ["other.yml", "small.yml"], ""),
    ],
)
def test_only_the_file_of_an_image_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, recipe: str, files: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in files:
        Path(file).write_text(TEXT.format(name=Path(file).stem))
    if recipe:
        record(tmp_path, image, recipe=recipe)
    fix = suggest_whole_image(Path(image))
    assert ("--force" in fix) == bool(named)
    assert f"`recipe build {named} -o {image} --force`" in fix if named else fix.startswith("copy it again from")


def test_a_renamed_file_is_found_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("later.yml").write_text(TEXT.format(name="later"))
    record(tmp_path, "small.sif", recipe="small", digest=load_recipe(Path("later.yml")).digest)
    assert "later.yml -o small.sif --force" in suggest_whole_image(Path("small.sif"))

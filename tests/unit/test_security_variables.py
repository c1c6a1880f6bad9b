"""Variables of a recipe: names that something obeys are refused, the others are in no script that runs on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import names
from support.matrix import target_plan
from support.rows import rows

from builder.model.finding import ConfigError
from builder.model.recipe import Recipe
from builder.parse.recipe import load_recipe
from builder.parse.site import BUNDLED, load_site

TARGETS = [
    (path.stem, backend) for path in sorted(BUNDLED.glob("*.yaml")) for backend in load_site(path.stem).build.backends
]
VALUE = "x$(touch CANARY)"
TEXT = "name: named\ndependencies: [python=3.12]\n{variables}"
IN_SECTION = "container: {{env: {{{name}: abc}}}}\n"
AT_TOP = "variables: {{{name}: abc}}\n"


def recipe_of(folder: Path, variables: str) -> Recipe:
    path = folder / "named.yml"
    path.write_text(TEXT.format(variables=variables))
    return load_recipe(path, shown="named.yml")


def texts_of(recipe: Recipe, *, site: str, backend: str) -> dict[str, str]:
    """The files of a plan without the digest of the recipe, which a Docker tag holds."""
    plan = target_plan(recipe, site=site, backend=backend)
    return {
        file.path: file.text.replace(recipe.digest, "DIGEST").replace(recipe.digest[:12], "DIGEST")
        for file in plan.files
    }


def test_the_names_are_many() -> None:
    assert len(set(names.REFUSED)) + len(set(names.ALLOWED)) >= 62
    assert not set(names.REFUSED) & set(names.ALLOWED)


@pytest.mark.parametrize("form", [IN_SECTION, AT_TOP], ids=["env", "variables"])
def test_security_06_names_that_are_obeyed_are_refused(form: str, tmp_path: Path) -> None:
    for name in names.REFUSED:
        with pytest.raises(ConfigError) as caught:
            recipe_of(tmp_path, form.format(name=name))
        (finding,) = (item for item in caught.value.findings if item.code != "secret")
        assert finding.code == "variable-name", name
        assert finding.message.startswith(f"'{name}' cannot be a variable of an image: ")
        assert finding.fix


@pytest.mark.parametrize("form", [IN_SECTION, AT_TOP], ids=["env", "variables"])
def test_security_06_what_programs_read_inside_is_allowed(form: str, tmp_path: Path) -> None:
    for name in names.ALLOWED:
        recipe = recipe_of(tmp_path, form.format(name=name))
        assert {**recipe.variables, **recipe.container.env} == {name: "abc"}


def test_a_plain_random_is_refused_in_words(tmp_path: Path) -> None:
    """It would end every script with "unbound variable", by bash's arithmetic."""
    with pytest.raises(ConfigError) as caught:
        recipe_of(tmp_path, "variables: {RANDOM: abc}\n")
    (finding,) = caught.value.findings
    assert (finding.at and finding.at.line, finding.fix) == (3, "choose another name")
    assert "shells set it" in finding.message


@rows(("site", "backend"), TARGETS)
def test_security_06_no_script_of_the_host_holds_a_variable(site: str, backend: str, tmp_path: Path) -> None:
    """What bash runs outside an image is the same with and without them, but for one function of container.sh."""
    variables = "variables: {" + ", ".join(f"'{name}': '{VALUE}'" for name in names.ALLOWED) + "}\n"
    plain, named = (texts_of(recipe_of(tmp_path, text), site=site, backend=backend) for text in ("", variables))
    assert named.keys() == plain.keys()
    scripts = [path for path in named if path.endswith((".sh", ".sbatch")) and not path.startswith("image/")]
    carried = {"run/container.sh", "2-verify.sh", "3-smoke.sh"} if backend in ("cotainr", "tykky") else set()
    assert {path for path in scripts if named[path] != plain[path]} <= carried
    if backend not in ("cotainr", "tykky"):
        return
    text = named["run/container.sh"]
    body = text[text.index("image_variables() {") : text.index("# in_image")]
    outside = text.replace(body, "")
    assert VALUE in body
    assert body.count("export ") == 1  # of NO_EVAL
    kept = outside.replace(outside[outside.find("-IS -c") : outside.find('"$@"', outside.find("-IS -c"))], "")
    assert VALUE not in kept  # tykky's PATH is a word for the Python inside
    assert "CANARY" not in "".join(named[path] for path in scripts if path != "run/container.sh")

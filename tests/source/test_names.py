"""Names: functions begin with a verb, classes are nouns, and no two classes have one name."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache

from support.own_code import PACKAGE, files, tree_of


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERBS = words("""
    adapt add answer append apply ask assemble assert assign attach beat begin build call can cancel capture catch
    check choose claim clean clear close collect color comment compare compile complete compute conclude connect
    convert copy count create cut decide decode define delete describe detect diagnose disable discard download
    draw drop echo emit enable end ensure enter escape estimate examine execute exit expand explain export extend
    feed fetch fill find finish fit fix flush follow forget format free get give group guess handle hash ignore
    import indent inspect install invoke isolate iterate join judge keep kill learn leave link list load locate
    lock log look make map mark mask match measure merge mount move name normalize note offer open order overwrite
    pack parse patch peek perform pick pin plan plot poll prefetch prepare prepend print probe project protect
    prune publish push put query quote raise read rebuild recall receive record recover redact redirect reduce refresh
    refuse register reject release remember remove rename render replace report reproduce require reserve reset
    resolve restore resume retry return rewrite round run sanitize save scale scan search select send serve set
    shield shorten show shrink shut sign signal skip sleep slugify smooth solve sort spawn split start stat stop
    store stream stringify strip submit suggest sum summarize supervise sweep switch sync synchronize tabulate take
    tell test tidy time touch train transfer translate try uncompress unlink unlock unpack unset update validate
    verify visit wait walk warn watch work wrap write yield
""")
# Questions with yes or no as the answer, conversions, entry points, and what click calls (getvalue, shell_complete).
OTHERS = words("""
    allows are can contains covers exists from getvalue has is looks main matches must needs serves shell supports
    targets to uses wants
""")
NOUNS = words("Binding Finding Listing Reading Setting String Training")
# One word that is no noun: a participle without -ed, an adverb, an adjective.
NO_NOUNS = words("""
    Again Ahead Bound Built Done Found Given Gone Held Here Inside Kept Known Left Made Said Seen Sent Shown Shut There
    Together Told Whole
""")


@cache
def rooms() -> tuple[tuple[str, ast.Module], ...]:
    found = [(path.relative_to(PACKAGE).parts[0], path) for path in files() if path.parent != PACKAGE]
    return tuple((room, tree_of(path)) for room, path in found if room != "data")


def public_classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def public_functions(tree: ast.Module) -> Iterator[str]:
    """Functions of a module and methods of its public classes; a property and a field name what they give."""
    for body in (tree.body, *(node.body for node in public_classes(tree))):
        for node in body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            if not any("property" in ast.unparse(item) for item in node.decorator_list):
                yield node.name


def is_verb(name: str) -> bool:
    return name.split("_")[0] in VERBS | OTHERS


def is_noun(name: str) -> bool:
    last = re.findall(r"[A-Z][a-z0-9]*", name)[-1]
    return last in NOUNS or not (last in NO_NOUNS or last.endswith(("ed", "ing")))


def test_functions_begin_with_a_verb() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for room, tree in rooms():
        found[room] += [name for name in public_functions(tree) if not is_verb(name)]
    assert {room: names for room, names in found.items() if names} == {}


def test_classes_are_nouns() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for room, tree in rooms():
        found[room] += [node.name for node in public_classes(tree) if not is_noun(node.name)]
    assert {room: names for room, names in found.items() if names} == {}


def test_no_two_classes_have_one_name() -> None:
    found = Counter(node.name for _, tree in rooms() for node in public_classes(tree))
    assert {name for name, count in found.items() if count > 1} == set()


def test_the_rules_know_verbs_and_nouns() -> None:
    assert is_verb("load_recipe")
    assert is_verb("is_known")
    assert not is_verb("told")
    assert not is_verb("base_image")
    assert is_noun("ShellExpr")
    assert is_noun("Finding")
    assert not is_noun("Placed")
    assert not is_noun("Ahead")


def test_no_script_defines_a_function_twice() -> None:
    """The shell takes the later one without a word, and a part of the build is not done."""
    for path in sorted((PACKAGE / "data" / "templates").glob("*.sh")):
        names = Counter(re.findall(r"^([a-z_]+)\(\)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert [name for name, count in names.items() if count > 1] == [], path.name

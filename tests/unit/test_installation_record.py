"""What an update of an installation can make of its record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.model.installation import InstalledFile, from_json, list_obstacles, to_json

OLD = InstalledFile(
    environment="name: a\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.11\n",
    pip=("--extra-index-url https://host/whl", "Six==1.16.0", "torch[x]==2.6.0+cpu", "./own"),
    run=("echo one",),
)


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        replace(OLD, pip=("six==1.17.0", "torch==2.7.0", "./own", "numpy>=2")),
        replace(OLD, run=("echo one", "echo two")),
    ],
)
def test_what_pip_adds_and_new_commands_are_possible(new: InstalledFile) -> None:
    assert list(list_obstacles(OLD, new)) == []


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (replace(OLD, environment=OLD.environment.replace("3.11", "3.12")), "- python=3.11, + python=3.12"),
        (replace(OLD, environment=f"{OLD.environment}  - numpy\n"), "the conda part changed (+ numpy)"),
        (replace(OLD, pip=OLD.pip[:2]), "pip removes nothing (./own, torch)"),
        (replace(OLD, run=()), "a command of container.run that has run"),
        (replace(OLD, run=("echo two", "echo one")), "a command of container.run that has run"),
    ],
)
def test_what_no_update_can_do_is_said(new: InstalledFile, words: str) -> None:
    assert [one for one in list_obstacles(OLD, new) if words in one]


def test_an_environment_in_another_order_is_another_one() -> None:
    """The order of channels decides where a package comes from."""
    old = replace(OLD, environment="channels:\n- a\n- b\n")
    assert list(list_obstacles(old, replace(old, environment="channels:\n- b\n- a\n"))) != []


def test_a_record_is_read_as_it_was_written() -> None:
    assert from_json(to_json(OLD).encode()) == OLD
    for text in (b"", b"[]", b'{"schema": 2}', b'{"schema": 1, "environment": 3}'):
        with pytest.raises(ValueError, match=r"\w"):
            from_json(text)

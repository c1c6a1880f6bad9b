"""Products: there, not empty and new."""

from __future__ import annotations

import os
from pathlib import Path

from builder.execute.step_runner import find_output_fault, find_output_faults, stat_output


def test_a_product_has_to_be_there_full_and_new(tmp_path: Path) -> None:
    path = tmp_path / "image.sif"
    assert find_output_fault(path, before=None) == "wrote no 'image.sif'"
    path.touch()
    assert find_output_fault(path, before=None) == "left 'image.sif' empty"
    path.write_text("old")
    old = stat_output(path)
    assert find_output_fault(path, before=None) == ""
    assert find_output_fault(path, before=old) == "left the old 'image.sif' as it was"
    fresh = tmp_path / "draft"
    fresh.write_text("old")
    os.utime(fresh, ns=(old.modified, old.modified) if old else None)
    fresh.rename(path)
    assert find_output_fault(path, before=old) == ""


def test_a_product_from_a_clock_that_is_wrong_is_new(tmp_path: Path) -> None:
    path = tmp_path / "image.sif"
    path.write_text("new")
    os.utime(path, (1, 1))
    assert find_output_fault(path, before=None) == ""


def test_folders_and_links_are_products_too(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    assert find_output_fault(folder, before=None) == "left the folder 'env' empty"
    (folder / "bin").mkdir()
    assert find_output_fault(folder, before=None) == ""
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    assert find_output_fault(link, before=None) == "wrote no 'link'"
    assert find_output_faults(tmp_path, ["env", "link", "x"], before={}) == "wrote no 'link', wrote no 'x'"

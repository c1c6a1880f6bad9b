"""What is written twice because a part runs alone is the same in both places."""

from __future__ import annotations

from packaging.utils import canonicalize_name
from support.rows import rows

from builder.compile import smoke_step
from builder.inspect import integrity
from builder.layers import metadata, wheel_files
from builder.layers.wheels import normalize_name
from builder.model import target
from builder.smoke import options, suite
from builder.system import layout


@rows("name", ["torch", "Flask-SQLAlchemy", "zope.interface", "ruamel_yaml", "a__b--c..d", "A-_.B", "x", "_a_", "1.0"])
def test_layers_normalise_a_name_as_packaging_does(name: str) -> None:
    assert normalize_name(name) == canonicalize_name(name)


def test_constants_of_what_runs_alone_are_those_of_the_program() -> None:
    assert wheel_files.PREFIX == target.PREFIX
    assert metadata.LAYERS == integrity.LAYERS
    assert options.DISTRIBUTED == smoke_step.DISTRIBUTED_WORKLOADS
    assert suite.VERDICT_FILE == layout.VERDICT_FILE
    assert smoke_step.TORCH_CHECK_FILE == layout.PROOF_FILE

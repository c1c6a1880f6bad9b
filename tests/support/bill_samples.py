"""Packages of every kind, as an image may hold them."""

from __future__ import annotations

from builder.model.contents import Contents, InstalledPackage, TorchBuild

PACKAGES = (
    InstalledPackage(
        kind="pip", name="Typing_Extensions", version="4.16.0", place="/opt/env/lib/python3.12/site-packages"
    ),
    InstalledPackage(kind="pip", name="torch", version="2.8.0+rocm6.4", license="BSD-3-Clause", place="/a"),
    InstalledPackage(kind="pip", name="torch", version="2.8.0+rocm6.4", place="/b"),
    InstalledPackage(
        kind="conda", name="numpy", version="2.1.0", build="py_0", channel="forge", subdir="linux-64", sha256="a" * 64
    ),
    InstalledPackage(kind="deb", name="libstdc++6", version="1:12.2.0-14", arch="amd64"),
    InstalledPackage(kind="rpm", name="glibc", version="1:2.34-60.el9", arch="x86_64"),
    InstalledPackage(kind="pip", name="\\x1b[2J @/?#&=% \u00e9", version="", place="/c"),
)  # fmt: skip
CONTENTS = Contents(
    image="x.sif", kind="sif", size=1, base="docker://debian:12", distribution="debian 12",
    labels={"recipe.digest": "d" * 64, "org.label-schema.build-date": "today"}, packages=PACKAGES,
    torch=(TorchBuild(version="2.8.0+rocm6.4", hip="6.4"),), unknown=("object 9 could not be read",),
)  # fmt: skip

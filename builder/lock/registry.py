"""The digest of a base image in a registry, for a lock: one question, nothing is downloaded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from builder.layers.reference import DIGEST, parts_of
from builder.layers.registry import TOKEN, Login, RegistryError, registry_digest
from builder.layers.registry_login import config_files, from_variables
from builder.lock.session import Session


def base_digest(reference: str, *, own: bool, session: Session) -> tuple[str, str]:
    """The digest of an image's manifest, and where it is not known the reason why.

    `own` says that the site or the user names the registry, and not the recipe.
    """
    scheme, tag = reference.partition("://")[0], parts_of(reference)[2]
    if DIGEST.fullmatch(tag):
        return tag, ""
    if scheme not in ("docker", "oras"):
        return "", f"{scheme}:// images have no digest that can be asked for"
    if session.offline:
        return "", "the registry was not asked (--offline)"

    def login(host: str) -> Login | None:
        return login_of(host, environment=session.environment, own=own)

    try:
        return registry_digest(reference, logins=login, environment=session.environment), ""
    except RegistryError as error:
        return "", str(error)


def login_of(host: str, *, environment: Mapping[str, str], own: bool = True) -> Login | None:
    """The login for a registry, as Docker itself finds it; None where there is none."""
    found = from_variables(host, environment=environment, own=own)
    if found is not None:
        return found
    # Only a registry that wants a login costs the time of this import.
    from docker import auth
    from docker.errors import DockerException

    for file in config_files(environment):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a program that is not installed
                known = auth.load_config(str(file), credstore_env=dict(environment)).resolve_authconfig(host) or {}
        except (DockerException, OSError, ValueError, TypeError, AttributeError, KeyError):
            continue  # a damaged file, or a program that does not answer: another file may know
        if known.get("IdentityToken"):
            return TOKEN, str(known["IdentityToken"])
        name, word = known.get("Username") or known.get("username"), known.get("Password") or known.get("password")
        if name and word:
            return str(name), str(word)
    return None

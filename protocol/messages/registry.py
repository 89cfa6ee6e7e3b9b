"""Finds the request and the response of an API key, which are declared in a file `kNN_name.py` of
this package.

Modules are imported on first use: a node uses few of them, and no codec is compiled before its
first message.
"""

import importlib
import os
from functools import cache

from protocol.api_keys import ApiKey
from protocol.declarations import name_in_kafka, numbered_modules
from protocol.schema import declaration_of


@cache
def declared_api_keys() -> tuple[ApiKey, ...]:
    """Return the keys that have a file here, ascending."""
    keys = tuple(key for key in ApiKey if key in _module_names())
    assert len(keys) == len(_module_names()), "a file here is for a key that ApiKey does not name"
    return keys


@cache
def request_class(api_key: int) -> type:
    """Return the request of a key. Raises KeyError for an undeclared key."""
    return _class_of(api_key, "Request")


@cache
def response_class(api_key: int) -> type:
    """Return the response of a key. Raises KeyError for an undeclared key."""
    return _class_of(api_key, "Response")


@cache
def versions_of(api_key: int) -> tuple[int, int]:
    """Return the first and the last declared version, both inclusive; a node's advertised versions
    depend on its release.

    Raises KeyError.
    """
    versions = declaration_of(request_class(api_key)).versions
    return versions.first, versions.last


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a version has tagged fields, and so the newer headers. Raises KeyError."""
    return version in declaration_of(request_class(api_key)).flexible


@cache
def _module_names() -> dict[int, str]:
    """Map each key to the name of its file."""
    return numbered_modules(os.path.dirname(__file__), "k")


def _class_of(api_key: int, suffix: str) -> type:
    module_name = _module_names()[api_key]
    module = importlib.import_module(f"{__package__}.{module_name}")
    name = name_in_kafka(module_name) + suffix
    found = getattr(module, name)
    assert isinstance(found, type) and declaration_of(found).api_key == api_key, (
        f"{module_name} does not declare {name}"
    )
    return found

"""All declared messages, found by walking the package: a new file is tested without being named here."""

import importlib
import pkgutil
from functools import cache

import pytest

import protocol
from protocol.declaration import Declaration


@cache
def declared_messages() -> tuple[type, ...]:
    """Return every class made by @message anywhere in the protocol, in order of module and name."""
    found: dict[str, type] = {}
    for module_info in sorted(pkgutil.walk_packages(protocol.__path__, "protocol."), key=lambda info: info.name):
        module = importlib.import_module(module_info.name)
        for name, value in sorted(vars(module).items()):
            declaration = getattr(value, "__declaration__", None)
            if (
                isinstance(value, type)
                and value.__module__ == module.__name__
                and isinstance(declaration, Declaration)
                and declaration.kind != "structure"
            ):
                found[f"{module.__name__}.{name}"] = value
    assert len(found) > 2, "the walk found no messages"
    return tuple(found.values())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that has an argument `message_class` all declared messages."""
    if "message_class" in metafunc.fixturenames:
        classes = declared_messages()
        metafunc.parametrize("message_class", classes, ids=[cls.__name__ for cls in classes])

"""All declared messages, found by walking the package: a new file is tested without being named here."""

import pytest

from protocol.drift.declared import declared_messages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that has an argument `message_class` all declared messages."""
    if "message_class" in metafunc.fixturenames:
        classes = declared_messages()
        metafunc.parametrize("message_class", classes, ids=[cls.__name__ for cls in classes])

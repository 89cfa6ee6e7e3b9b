"""All declared messages, found by walking the package: a new file is tested automatically."""

import pytest

from tools.drift.comparison import declared_messages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test with an argument `message_class` with all declared messages."""
    if "message_class" in metafunc.fixturenames:
        classes = declared_messages()
        metafunc.parametrize("message_class", classes, ids=[cls.__name__ for cls in classes])

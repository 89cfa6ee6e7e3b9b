"""What holds for every test: those that need Spark come last, so that its Java lives once and for as short as can be."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the Spark tests behind all others; the rest keeps its order."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)

"""Images, built once for all tests of this directory."""

import pytest

from tests.compose.dockerfile import Image


@pytest.fixture(scope="session")
def node_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of nodes."""
    return Image(tmp_path_factory.mktemp("node_image")).build("node")


@pytest.fixture(scope="session")
def analysis_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image in which scenarios are run and checked."""
    return Image(tmp_path_factory.mktemp("analysis_image")).build("analysis")

"""The documentation site builds without a dead link or a missing anchor, and loads no external
resource.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.docs.generate import GENERATED, REFERENCE
from tools.docs.site import assemble, with_site_links

PROJECT_ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.IGNORECASE
)


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Run `mkdocs build --strict` on a source directory."""
    settings = (PROJECT_ROOT / "mkdocs.yml").read_text()
    assert "docs_dir: build/site-src" in settings and "site_dir: build/site" in settings
    settings = settings.replace("build/site-src", str(source)).replace(
        "site_dir: build/site", f"site_dir: {site}"
    )
    file = source.parent / "mkdocs.yml"
    file.write_text(settings)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(file)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The assembled source of the site."""
    place = tmp_path_factory.mktemp("docs") / "source"
    assert assemble(place) > len(GENERATED)
    return place


def test_the_site_builds_without_a_warning(source: Path) -> None:
    site = source.parent / "site"
    done = build(source, site)
    assert done.returncode == 0, done.stderr
    pages = [page.replace(".md", ".html") for page in GENERATED if page.endswith(".md")]
    assert not [page for page in pages if not (site / REFERENCE / page).is_file()]
    assert (site / "index.html").is_file() and (site / "filter.js").is_file()
    loading = [page.name for page in site.rglob("*.html") if LOADED.search(page.read_text())]
    assert not loading, "a page loads a script, a style or an image from another host"


@pytest.mark.parametrize("link", ["no-such-page.md", "glossary.md#no-such-heading"])
def test_a_dead_link_or_anchor_fails_the_build(tmp_path: Path, link: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    settings = yaml.safe_load((PROJECT_ROOT / "mkdocs.yml").read_text())
    settings |= {
        "nav": None,
        "not_in_nav": None,
        "docs_dir": str(source),
        "site_dir": str(tmp_path / "site"),
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    for name in ("site.css", "filter.js"):
        (source / name).touch()
    (source / "glossary.md").write_text("# Glossary\n")
    (source / "index.md").write_text(f"# Start\n\n[there]({link})\n")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(tmp_path / "mkdocs.yml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "no-such" in done.stderr


def test_links_between_files_become_links_between_pages() -> None:
    text = (
        "[a](docs/glossary.md) [b](CONTRIBUTING.md#set-up) [c](https://example.org/docs/x.md) "
        "![d](docs/report.png)"
    )
    assert with_site_links(text, "README.md") == (
        "[a](glossary.md) [b](contributing.md#set-up) [c](https://example.org/docs/x.md) "
        "![d](report.png)"
    )
    assert with_site_links("[e](../README.md) [f](reference/settings.md)", "docs/clusters.md") == (
        "[e](index.md) [f](reference/settings.md)"
    )

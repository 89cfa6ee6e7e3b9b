"""Assembles the source of the documentation site: handwritten pages, generated reference, README.

Links between files of the repository become links between pages of the site, so that
`mkdocs build --strict` checks each of them, anchors included.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.docs.generate import GENERATED, REFERENCE, text_of

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
COPIED: Final = (".md", ".svg", ".png", ".css", ".js")
"""Suffixes of the files in docs/ that are part of the site; the rest is code and data."""
ROOT_PAGES: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "changelog.d/README.md": "changelog-fragments.md",
    "LICENSE": "LICENSE",
    "NOTICE": "NOTICE",
}
"""File of the repository -> file of the site."""
LINK: Final = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def assemble(target: Path) -> int:
    """Write the source of the site to `target`, which is emptied; return the number of files."""
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(DOCS.rglob("*")):
        if file.suffix in COPIED:
            _put(target, f"docs/{file.relative_to(DOCS).as_posix()}")
    for name in ROOT_PAGES:
        _put(target, name)
    for page in GENERATED:
        place = target / REFERENCE / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text_of(page))
    return sum(file.is_file() for file in target.rglob("*"))


def _put(target: Path, name: str) -> None:
    """Copy one file of the repository; rewrite the links of a page."""
    place = target / _in_site(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".md"):
        place.write_text(with_site_links((ROOT / name).read_text(), name))
    else:
        shutil.copyfile(ROOT / name, place)


def with_site_links(text: str, name: str) -> str:
    """Rewrite the relative links of the page `name`, a path in the repository."""
    here = os.path.dirname(_in_site(name))

    def moved(found: re.Match[str]) -> str:
        repository_path = os.path.normpath(os.path.join(os.path.dirname(name), found[2]))
        link = os.path.relpath(_in_site(repository_path), here or ".")
        return f"{found[1]}{link}{found[3] or ''}{found[4]}"

    return LINK.sub(moved, text)


def _in_site(name: str) -> str:
    return ROOT_PAGES.get(name, name.removeprefix("docs/"))

"""The page that shows a running cluster and acts on it: static files, which the HTTP server hands
out as they are.

The shell needs no token and has no data: its script reads the token from the fragment of the URL
(`#token=...`, which browsers do not send) or asks for it, and then calls the API like any other
client. Nothing comes from another host, and the policy below forbids it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

PAGE_HEADERS: Final = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'",
        "cache-control": "no-cache",
    }
)
"""Headers of these files, on top of those of every response."""

MEDIA_TYPES: Final = MappingProxyType(
    {
        "html": "text/html; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml",
    }
)

PAGE_FILES: Final = MappingProxyType(
    {
        "/": "index.html",
        "/page/page.css": "page.css",
        "/page/tables.css": "tables.css",
        "/page/icon.svg": "icon.svg",
        "/page/page.js": "page.js",
        "/page/connection.js": "connection.js",
        "/page/elements.js": "elements.js",
        "/page/lanes.js": "lanes.js",
        "/page/nodes.js": "nodes.js",
        "/page/partitions.js": "partitions.js",
        "/page/faults.js": "faults.js",
        "/page/tables.js": "tables.js",
    }
)
"""The paths of the page and their files; all of them may be read without a token."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """The content of a file of the page, and its media type."""

    content: bytes
    media_type: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files by their paths."""
    place = files(__name__)
    return MappingProxyType(
        {
            path: PageFile(place.joinpath(name).read_bytes(), MEDIA_TYPES[name.rpartition(".")[2]])
            for path, name in PAGE_FILES.items()
        }
    )

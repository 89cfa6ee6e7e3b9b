"""Reads a Java properties file, the format of Kafka's server.properties.

Source: java.util.Properties.load, as far as Kafka's files use it: comments, the three separators,
escapes, and continuation lines.
"""

import re

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\$")


def read_properties(text: str) -> dict[str, str]:
    """Return the properties of a file's text; the last one of a key wins."""
    properties = {}
    for line in _logical_lines(text):
        key, *rest = SEPARATOR.split(line, maxsplit=1)
        properties[_unescaped(key)] = _unescaped(rest[0]) if rest else ""
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continues = False
    for raw in text.splitlines():
        line = raw.lstrip()
        if not continues and (not line or line[0] in "#!"):
            continue
        ends_open = GOES_ON.search(line) is not None
        content = line[:-1] if ends_open else line
        if continues:
            lines[-1] += content
        else:
            lines.append(content)
        continues = ends_open
    return lines


def _unescaped(text: str) -> str:
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), text)

"""Writes values as EDN, the data notation of Clojure in which Jepsen keeps histories.

Source: github.com/edn-format/edn.
"""

from collections.abc import Mapping, Sequence
from typing import Final

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Keyword(str):
    """A name that is written with a colon: `Keyword("ok")` is `:ok`."""

    __slots__ = ()


Edn = None | bool | int | str | Sequence["Edn"] | Mapping[Keyword, "Edn"]


def edn(value: Edn) -> str:
    """Return a value as EDN: sequences are vectors, None is nil."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{edn(name)} {edn(each)}" for name, each in value.items()) + "}"
    return "[" + " ".join(edn(each) for each in value) + "]"


def _text(value: str) -> str:
    if value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return '"' + "".join(_ESCAPES.get(letter) or _escaped(letter) for letter in value) + '"'


def _escaped(letter: str) -> str:
    """Return a letter so that it cannot end a line; one beyond 16 bits has no escape, and ends
    none.
    """
    return letter if letter.isprintable() or ord(letter) > 0xFFFF else f"\\u{ord(letter):04x}"

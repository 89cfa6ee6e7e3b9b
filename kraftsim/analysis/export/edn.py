"""Writes and reads values as EDN, the data notation of Clojure in which Jepsen keeps histories.

Source: github.com/edn-format/edn.
"""

import re
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


# --------------------------------------------------------------------------------------------------
# Reading: nil, booleans, numbers, strings, keywords, symbols, vectors, lists, sets and maps

_TOKEN: Final = re.compile(
    r"""(?:[\s,]|;[^\n]*)*(?:(?P<open>\#?[\[({])|(?P<close>[\])}])|"(?P<text>(?:[^"\\]|\\.)*)"|"""
    r"""(?P<word>[^\s,"\[\](){};]+))"""
)
_CLOSING: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_WORDS: Final = {"nil": None, "true": True, "false": False}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_edn(text: str) -> Edn:
    """Return the one value of a text: maps need keywords as keys, and a tag is dropped.

    Raises ValueError.
    """
    value, end = _value(text, 0)
    if text[end:].strip(" \t\r\n,"):
        raise ValueError(f"more after the value: {text[end : end + 20]}")
    return value


def _value(text: str, at: int) -> tuple[Edn, int]:
    found = _TOKEN.match(text, at)
    while found is not None and found["word"] is not None and found["word"].startswith("#"):
        found = _TOKEN.match(text, found.end())  # a tag, such as jepsen.history.Op
    if found is None or found["close"]:
        raise ValueError(f"no value at {text[at : at + 20]!r}")
    if found["open"]:
        return _collection(text, found.end(), found["open"])
    if found["text"] is not None:
        return _ESCAPE.sub(_letter, found["text"]), found.end()
    word = found["word"]
    if word in _WORDS:
        return _WORDS[word], found.end()
    if word.startswith(":"):
        return Keyword(word[1:]), found.end()
    try:
        return int(word.removesuffix("N")), found.end()
    except ValueError:
        return word, found.end()  # a symbol, or a number that is no integer


def _collection(text: str, at: int, opening: str) -> tuple[Edn, int]:
    items: list[Edn] = []
    while True:
        found = _TOKEN.match(text, at)
        if found is not None and found["close"]:
            if found["close"] != _CLOSING[opening]:
                raise ValueError(f"{found['close']} instead of {_CLOSING[opening]}")
            break
        item, at = _value(text, at)
        items.append(item)
    if opening != "{":
        return items, found.end()
    if len(items) % 2:
        raise ValueError(f"a map with {len(items)} forms")
    pairs: dict[Keyword, Edn] = {}
    for name, each in zip(items[::2], items[1::2], strict=True):
        pairs[name if isinstance(name, Keyword) else Keyword(str(name))] = each
    return pairs, found.end()


def _letter(found: re.Match[str]) -> str:
    name = found[1]
    return chr(int(name[1:], 16)) if len(name) > 1 else _LETTERS.get(name, name)

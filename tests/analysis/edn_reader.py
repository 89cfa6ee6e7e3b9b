"""A reader of EDN for tests: nil, booleans, integers, strings, keywords, vectors, lists and maps.

Source: github.com/edn-format/edn.
"""

import re

TOKEN = re.compile(
    r"""[\s,]*(?:(?P<open>[\[({])|(?P<close>[\])}])|"(?P<text>(?:[^"\\]|\\.)*)"|"""
    r"""(?P<word>[^\s,"\[\](){}]+))"""
)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
PAIRS = {"[": "]", "(": ")", "{": "}"}
LETTERS = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
WORDS = {"nil": None, "true": True, "false": False}

Edn = None | bool | int | str | tuple["Edn", ...] | dict["Edn", "Edn"]
"""A keyword is a str that begins with a colon; a text begins with an apostrophe."""


def read_edn(text: str) -> Edn:
    """Return the one value of a text; anything else raises ValueError."""
    value, at = _value(text, 0)
    if text[at:].strip():
        raise ValueError(f"more after the value: {text[at:]}")
    return value


def _value(text: str, at: int) -> tuple[Edn, int]:
    found = TOKEN.match(text, at)
    if found is None or found["close"]:
        raise ValueError(f"no value at {at}: {text[at : at + 20]}")
    if found["open"]:
        return _collection(text, found.end(), PAIRS[found["open"]])
    if found["text"] is not None:
        return "'" + ESCAPE.sub(_letter, found["text"]), found.end()
    word = found["word"]
    if word in WORDS:
        return WORDS[word], found.end()
    if word.startswith(":"):
        return word, found.end()
    return int(word), found.end()


def _collection(text: str, at: int, closing: str) -> tuple[Edn, int]:
    items: list[Edn] = []
    while True:
        found = TOKEN.match(text, at)
        if found is not None and found["close"]:
            if found["close"] != closing:
                raise ValueError(f"{found['close']} instead of {closing} at {at}")
            break
        item, at = _value(text, at)
        items.append(item)
    if closing != "}":
        return tuple(items), found.end()
    if len(items) % 2:
        raise ValueError(f"a map with {len(items)} forms before {at}")
    return dict(zip(items[::2], items[1::2], strict=True)), found.end()


def _letter(found: re.Match[str]) -> str:
    name = found[1]
    return chr(int(name[1:], 16)) if len(name) == 5 else LETTERS[name]

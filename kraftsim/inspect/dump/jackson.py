"""JSON text as Jackson writes it: no spaces, non-ASCII letters unescaped, doubles in Java's
notation.

Source: com.fasterxml.jackson.databind.JsonNode.toString, java.lang.Double.toString.
"""

import json
from typing import Final

from kraftsim.inspect.json_lines import Json

FIRST_EXPONENT, LAST_PLAIN = 1e-3, 1e7
_TEXT: Final = json.JSONEncoder(ensure_ascii=False)


def json_text(value: Json) -> str:
    """Return the text of a JSON value."""
    match value:
        case dict():
            return (
                "{"
                + ",".join(
                    f"{_TEXT.encode(name)}:{json_text(each)}" for name, each in value.items()
                )
                + "}"
            )
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case float():
            return java_double(value)
        case _:
            return _TEXT.encode(value)


def java_double(value: float) -> str:
    """Return a double as Java prints it: 1.0E7 instead of 10000000.0."""
    if (
        value == 0
        or FIRST_EXPONENT <= abs(value) < LAST_PLAIN
        or value != value
        or value in (float("inf"), float("-inf"))
    ):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = _scientific(value).partition("e")
    if "." not in digits:
        digits += ".0"
    return f"{digits}E{int(exponent)}"


def _scientific(value: float) -> str:
    """Return the shortest digits that identify the double, with an exponent."""
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    raise AssertionError("17 digits name every double")

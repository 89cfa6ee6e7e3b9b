"""Regular expressions sent by clients: RE2 syntax, whose cost is linear in the expression and the
text.

Apache Kafka compiles them with RE2/J, this with RE2. What RE2 accepts and RE2/J rejects is rejected
here; the error messages are RE2/J's. Expressions with a program larger than PROGRAM_BYTES_MAX are
rejected, too, as compiling blocks the node.
Source: KIP-848, KIP-1152, com.google.re2j.{Parser, Pattern} 1.8, which 4.1 to 4.4 use.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol

PROGRAM_BYTES_MAX: Final = 1 << 20
"""RE2's memory limit per expression: it then compiles within about 20 ms, and the worst text of 249
characters takes about 1 ms.
"""
KEPT_MAX: Final = 256
CONTROL_OF_GROUPS: Final = ("(?P<", "(?<")
NAMELESS: Final = ("(?<=", "(?<!")
INVALID_ESCAPE: Final = "invalid escape sequence"
TRAILING_BACKSLASH: Final = "trailing backslash at end of expression"
INVALID_CAPTURE: Final = "invalid named capture"
RE2J_MESSAGES: Final = {
    "invalid escape sequence": INVALID_ESCAPE,
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": INVALID_CAPTURE,
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": TRAILING_BACKSLASH,
}
"""RE2's error messages -> RE2/J's, where they differ."""


class InvalidExpression(ValueError):
    """An invalid expression. `description` is RE2/J's message."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


class Expression(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None:
        """Return a match of the whole text, or None."""
        ...


@lru_cache(KEPT_MAX)
def client_expression(text: str) -> Expression:
    """Compile a client's expression. Raises InvalidExpression."""
    import re2  # imported on first use: it takes a few milliseconds, and most nodes never need it

    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        found: Expression = re2.compile(_of_re2(text), options)
    except UnicodeEncodeError:
        raise InvalidExpression("invalid UTF-8") from None
    except re2.error as mistake:
        raise InvalidExpression(_re2j_message(mistake.args[0])) from None
    _refuse_what_only_re2_takes(text)
    return found


def _re2j_message(message: object) -> str:
    """Return RE2/J's message for an error of RE2."""
    what, _, where = (
        (message if isinstance(message, bytes) else b"").decode(errors="replace").partition(": ")
    )
    if where in NAMELESS:
        return INVALID_CAPTURE
    return RE2J_MESSAGES.get(what, what)


def tokens(text: str) -> Iterator[str]:
    r"""Yield an expression in pieces: escapes, `\Q...\E` and classes whole, the beginnings of named
    groups, all else character by character.
    """
    position, last_named_end = 0, text.rfind(":]")
    while position < len(text):
        end = position + 1
        if text.startswith("\\Q", position):
            closed = text.find("\\E", position + 2)
            end = len(text) if closed < 0 else closed + 2
        elif text[position] == "\\":
            end = min(position + 2, len(text))
        elif text[position] == "[":
            end = _class_end(text, position, last_named_end)
        elif text.startswith(CONTROL_OF_GROUPS, position) and not text.startswith(
            NAMELESS, position
        ):
            closed = text.find(">", position)
            end = len(text) if closed < 0 else closed + 1
        yield text[position:end]
        position = end


def _class_end(text: str, position: int, last_named_end: int) -> int:
    """Return the end of a character class that begins at a position: a bracket right after its
    beginning is literal.

    `last_named_end` is the position of the last `:]`: named classes are not searched after it.
    """
    position += 2 if text.startswith("^", position + 1) else 1
    is_first = True
    while position < len(text) and (is_first or text[position] != "]"):
        is_first = False
        named_end = (
            text.find(":]", position + 2)
            if position + 2 <= last_named_end and text.startswith("[:", position)
            else -1
        )
        if named_end >= 0:
            position = named_end + 2
        else:
            position += 2 if text[position] == "\\" else 1
    return min(position + 1, len(text))


def _of_re2(text: str) -> str:
    """Convert RE2/J syntax to RE2: an escaped non-ASCII character stands for itself."""
    return "".join(
        token[1] if len(token) == 2 and token[0] == "\\" and not token[1].isascii() else token
        for token in tokens(text)
    )


def _refuse_what_only_re2_takes(text: str) -> None:
    r"""Raise InvalidExpression for `\C`, and for names of groups that are not ASCII or that come
    twice.
    """
    names: set[str] = set()
    for token in tokens(text):
        if token == "\\C":
            raise InvalidExpression(INVALID_ESCAPE)
        if token.startswith(CONTROL_OF_GROUPS):
            name = token[token.index("<") + 1 : -1]
            if not name.isascii():
                raise InvalidExpression(INVALID_CAPTURE)
            if name in names:
                raise InvalidExpression("duplicate capture group name")
            names.add(name)

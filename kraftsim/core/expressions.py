"""Regular expressions of clients, whose cost is linear in the expression and the text: RE2 syntax
to match with, and Java's, which is only validated.

Apache Kafka compiles RE2 syntax with RE2/J, this with RE2. What RE2 accepts and RE2/J rejects is
rejected here; the error messages are RE2/J's. Expressions with a program larger than
PROGRAM_BYTES_MAX are rejected, too, as compiling blocks the node.
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


# --------------------------------------------------------------------------------------------------
# Validation of Java regular expressions: nothing is matched with them here
#
# RE2 validates them, whose cost is linear in the text. Counted repetitions, which RE2 would expand,
# are validated here. What java.util.regex accepts and RE2 does not is rejected: look-around,
# references, possessive and atomic groups, classes that RE2 does not know. What only RE2 accepts is
# rejected, too.
# Source: java.util.regex.Pattern of OpenJDK 17.

TIMES_MAX: Final = 2**31 - 1
KINDS: Final = {
    "L": "ultmo",
    "M": "nec",
    "N": "dlo",
    "P": "cdseifo",
    "S": "mcko",
    "Z": "slp",
    "C": "cfos",
}
CATEGORIES: Final = frozenset(KINDS) | {kind + each for kind in KINDS for each in KINDS[kind]}
"""General categories by their common names; other names are scripts in RE2, and other properties in
Java.
"""
NAME_IN_BRACES_MAX: Final = 4
"""The length of the longest of these names, in braces; a longer one is invalid."""
OCTAL: Final = frozenset("01234567")
SAME_PLACES: Final = {
    "\\e": "\\a",
    "\\Z": "\\z",
    "\\G": "\\A",
    "\\h": "\\d",
    "\\H": "\\d",
    "\\V": "\\d",
}
"""Java-only escapes, and what replaces them for RE2 at any position."""
REPEATING: Final = (["*"], ["+"], ["?"], ["{"])
ONLY_RE2: Final = ("\\C", "\\E")


def is_java_expression(text: str) -> bool:
    """Return whether both Java and RE2 accept a text as an expression."""
    try:
        client_expression(_without_counts(text))
    except InvalidExpression:
        return False
    return True


def _without_counts(text: str) -> str:
    """Return a regular expression that RE2 accepts if the text is valid.

    Raises InvalidExpression for what only RE2 accepts.
    """
    pieces = list(tokens(text))
    found = []
    position = 0
    while position < len(pieces):
        piece = pieces[position]
        position += 1
        if piece == "{":
            end = _behind_count(pieces, position)
            piece = "{1}"
            position = end
        elif piece == "\\x" and pieces[position : position + 1] == ["{"]:
            end = _end_of_braces(pieces, position)
            piece += "".join(pieces[position:end])
            position = end
        elif piece in ("\\p", "\\P"):
            position = _require_category(pieces, position)
            piece = "\\d"
        elif piece == "\\0" and (position == len(pieces) or pieces[position] not in OCTAL):
            raise InvalidExpression("illegal octal escape sequence")
        elif piece == "(" and _repeats_flags(pieces, position):
            raise InvalidExpression("dangling meta character")
        elif piece.startswith("["):
            _require_class(piece)
        elif piece.startswith("(?P<") or piece in ONLY_RE2:
            raise InvalidExpression("supported by RE2 only")
        elif piece.startswith("(?<"):
            _require_name(piece[3:-1])
        found.append(SAME_PLACES.get(piece, piece))
    return "".join(found)


def _end_of_braces(pieces: list[str], position: int) -> int:
    """Return the position after the next closing brace, or the end if there is none."""
    try:
        return pieces.index("}", position) + 1
    except ValueError:
        return len(pieces)


def _behind_count(pieces: list[str], position: int) -> int:
    """Return the position after a counted repetition whose opening brace was read: {3}, {3,},
    {3,5}.
    """
    try:
        end = pieces.index("}", position)
    except ValueError:
        raise InvalidExpression("unclosed counted closure") from None
    least, comma, most = "".join(pieces[position:end]).partition(",")
    numbers = [least, most] if comma and most else [least]
    if not all(each.isascii() and each.isdigit() for each in numbers):
        raise InvalidExpression("illegal repetition")
    if max(map(len, numbers)) > 10 or not 0 <= int(least) <= int(numbers[-1]) <= TIMES_MAX:
        raise InvalidExpression("illegal repetition range")
    return end + 1


def _require_category(pieces: list[str], position: int) -> int:
    """Return the position after the name of a general category: \\pL, \\p{Lu}."""
    name = pieces[position] if position < len(pieces) else ""
    end = position + 1
    if name == "{":
        try:
            end = pieces.index("}", position) + 1
        except ValueError:
            raise InvalidExpression("unclosed character family") from None
        name = "".join(pieces[position + 1 : end - 1])
    if name not in CATEGORIES:
        raise InvalidExpression("unknown character property name")
    return end


def _require_name(name: str) -> None:
    if not name.isascii() or not name.isalnum() or not name[0].isalpha():
        raise InvalidExpression("named capturing group is missing trailing '>'")


def _repeats_flags(pieces: list[str], position: int) -> bool:
    """Return whether a flag group is repeated: (?i)*."""
    if pieces[position : position + 1] != ["?"]:
        return False
    end = position + 1
    while end < len(pieces) and (pieces[end].isalpha() or pieces[end] == "-"):
        end += 1
    return pieces[end : end + 1] == [")"] and pieces[end + 1 : end + 2] in REPEATING


def _require_class(text: str) -> None:
    """Raise InvalidExpression for a class of RE2 that is invalid in Java, where classes may be
    nested, with their own brackets.
    """
    depth, position = 1, 2 if text.startswith("[^") else 1
    is_first = True
    while position < len(text):
        character = text[position]
        if character == "[":
            depth += 1
        elif character == "]" and not is_first:
            depth -= 1
        elif character == "\\":
            _require_escape(text, position)
        position += 2 if character == "\\" else 1
        is_first = character == "[" or (is_first and character == "^")
    if depth:
        raise InvalidExpression("unclosed character class")


def _require_escape(text: str, position: int) -> None:
    """Check the escape after a backslash in a class."""
    escaped, behind = (
        text[position + 1 : position + 2],
        list(text[position + 2 : position + 2 + NAME_IN_BRACES_MAX]),
    )
    if escaped == "0" and behind[:1] and behind[0] not in OCTAL:
        raise InvalidExpression("illegal octal escape sequence")
    if escaped in ("p", "P"):
        _require_category(behind, 0)

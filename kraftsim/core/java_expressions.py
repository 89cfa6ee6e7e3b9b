r"""Whether a text is a valid Java regular expression: only validated, nothing is matched with it
here.

RE2 validates it, whose cost is linear in the text. Counted repetitions, which RE2 would expand, are
validated here. What java.util.regex accepts and RE2 does not is rejected: look-around, references,
possessive and atomic groups, classes that RE2 does not know. What only RE2 accepts is rejected,
too.
Source: java.util.regex.Pattern of OpenJDK 17.
"""

from typing import Final

from kraftsim.core.client_expressions import InvalidExpression, client_expression, tokens

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

r"""Whether a text is a regular expression of Java: only that is asked, nothing is matched with it here.

RE2 looks at it, whose cost grows with the text and never faster. Counted repetitions, which it would
write out, are looked at here. What java.util.regex takes and RE2 does not is refused: look-around,
references, possessive and atomic groups, classes that RE2 does not know. What only RE2 takes is refused, too.
Source: java.util.regex.Pattern of OpenJDK 17.
"""

from typing import Final

from kraftsim.core.client_expressions import InvalidExpression, client_expression, tokens

TIMES_MAX: Final = 2**31 - 1
KINDS: Final = {"L": "ultmo", "M": "nec", "N": "dlo", "P": "cdseifo", "S": "mcko", "Z": "slp", "C": "cfos"}
CATEGORIES: Final = frozenset(KINDS) | {kind + each for kind in KINDS for each in KINDS[kind]}
"""General categories by their names in both; other names are of scripts in RE2, and of other things in Java."""
NAME_IN_BRACES_MAX: Final = 4
"""Characters of the longest of these names, in braces; whatever is longer is none."""
OCTAL: Final = frozenset("01234567")
SAME_PLACES: Final = {"\\e": "\\a", "\\Z": "\\z", "\\G": "\\A", "\\h": "\\d", "\\H": "\\d", "\\V": "\\d"}
"""Escapes of Java only, and what may stand in RE2 wherever they may stand."""
REPEATING: Final = (["*"], ["+"], ["?"], ["{"])
ONLY_RE2: Final = ("\\C", "\\E")


def is_java_expression(text: str) -> bool:
    """Tell whether both Java and RE2 take a text for an expression."""
    try:
        client_expression(_without_counts(text))
    except InvalidExpression:
        return False
    return True


def _without_counts(text: str) -> str:
    """Return an expression of RE2 that is one if the text is. Raises InvalidExpression for what only RE2 takes."""
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
            raise InvalidExpression("only RE2 takes it")
        elif piece.startswith("(?<"):
            _require_name(piece[3:-1])
        found.append(SAME_PLACES.get(piece, piece))
    return "".join(found)


def _end_of_braces(pieces: list[str], position: int) -> int:
    """Return where the next closing brace ends, or all pieces if there is none."""
    try:
        return pieces.index("}", position) + 1
    except ValueError:
        return len(pieces)


def _behind_count(pieces: list[str], position: int) -> int:
    """Return where a counted repetition ends that begins behind a brace: {3}, {3,}, {3,5}."""
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
    """Return where the name of a general category ends: \\pL, \\p{Lu}."""
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
    """Tell whether flags that stand by themselves are repeated: (?i)*."""
    if pieces[position : position + 1] != ["?"]:
        return False
    end = position + 1
    while end < len(pieces) and (pieces[end].isalpha() or pieces[end] == "-"):
        end += 1
    return pieces[end : end + 1] == [")"] and pieces[end + 1 : end + 2] in REPEATING


def _require_class(text: str) -> None:
    """Raise InvalidExpression for a class of RE2 that is none of Java: there classes may lie within classes, with brackets of their own."""
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
    """Look at what is behind a backslash within a class."""
    escaped, behind = text[position + 1 : position + 2], list(text[position + 2 : position + 2 + NAME_IN_BRACES_MAX])
    if escaped == "0" and behind[:1] and behind[0] not in OCTAL:
        raise InvalidExpression("illegal octal escape sequence")
    if escaped in ("p", "P"):
        _require_category(behind, 0)

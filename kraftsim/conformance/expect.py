"""How a check says that a node does not do what it must, or that it cannot be asked at all."""

from protocol.errors import ErrorCode

SHOWN_CHARACTERS = 200


class Unmet(Exception):
    """A requirement is not met: what was looked at, and where that is two things, what was expected of it and what came."""

    def __init__(self, what: str, expected: str = "", came: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, got {came}" if expected or came else what)
        self.what = what
        self.expected = expected
        self.came = came


class Inapplicable(Exception):
    """This node cannot be asked: the check lacks something that the caller or the node did not give. The message says what."""


def expect(condition: bool, otherwise: str) -> None:
    """Raise Unmet unless the condition holds."""
    if not condition:
        raise Unmet(otherwise)


def expect_equal(actual: object, expected: object, what: str) -> None:
    """Raise Unmet unless two values are equal."""
    if actual != expected:
        raise Unmet(what, _shown(expected), _shown(actual))


def expect_error(actual: int, expected: ErrorCode, what: str) -> None:
    """Raise Unmet unless an error code is the expected one."""
    if actual != expected:
        raise Unmet(what, error_name(expected), error_name(actual))


def error_name(code: int) -> str:
    """Return number and name of an error code."""
    return f"{code} {ErrorCode(code).name}" if code in ErrorCode._value2member_map_ else str(code)


def _shown(value: object) -> str:
    text = value.hex(" ", -2) if isinstance(value, bytes) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."

"""How a check says that a node does not do what it must."""

from protocol.errors import ErrorCode


class Unmet(Exception):
    """A requirement is not met; the message says what was expected and what came."""


def expect(condition: bool, otherwise: str) -> None:
    """Raise Unmet unless the condition holds."""
    if not condition:
        raise Unmet(otherwise)


def expect_equal(actual: object, expected: object, what: str) -> None:
    """Raise Unmet unless two values are equal."""
    if actual != expected:
        raise Unmet(f"{what}: expected {_shown(expected)}, got {_shown(actual)}")


def expect_error(actual: int, expected: ErrorCode, what: str) -> None:
    """Raise Unmet unless an error code is the expected one."""
    if actual != expected:
        raise Unmet(f"{what}: expected {error_name(expected)}, got {error_name(actual)}")


def error_name(code: int) -> str:
    """Return number and name of an error code."""
    return f"{code} {ErrorCode(code).name}" if code in ErrorCode._value2member_map_ else str(code)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

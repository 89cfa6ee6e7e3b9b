"""How a check reports that a node does not meet a requirement, or that the check does not apply to
it.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from protocol.errors import ErrorCode

SHOWN_CHARACTERS = 200


class Unmet(Exception):
    """A requirement is not met: what was checked, and for a comparison the expected and the actual
    value.
    """

    def __init__(self, what: str, expected: str = "", came: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, got {came}" if expected or came else what)
        self.what = what
        self.expected = expected
        self.came = came


class Inapplicable(Exception):
    """The check does not apply: it needs something that the caller or the node does not provide.

    The message says what.
    """


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


# --------------------------------------------------------------------------------------------------
# Waiting for propagation: a broker applies what the controller has committed with a delay

T = TypeVar("T")
SETTLE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.02


def settled(
    look: Callable[[], T], is_there: Callable[[T], bool], what: str, seconds: float = SETTLE_SECONDS
) -> T:
    """Poll until the condition is true, and return the value. Raises Unmet after a time-out."""
    give_up_at = time.monotonic() + seconds
    while True:
        seen = look()
        if is_there(seen):
            return seen
        if time.monotonic() > give_up_at:
            raise Unmet(f"{what} timed out: last seen {seen!r}")
        time.sleep(PAUSE_SECONDS)

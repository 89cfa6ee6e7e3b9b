"""Which form of the codecs this process uses: compiled, or construct's own interpretation of the
same trees.

The form is chosen before the first node starts: functions that a caller has already taken from a
codec keep theirs. The variable is inherited by the node processes of a cluster.
"""

import os
from collections.abc import Callable
from typing import Final

COMPILED: Final = "compiled"
CONSTRUCT: Final = "construct"
FORMS: Final = (COMPILED, CONSTRUCT)
VARIABLE: Final = "KRAFTSIM_CODEC"

FOLLOWERS: list[Callable[[], None]] = []
"""Called after each choice: what was made for another form is made again."""


class _Process:
    """The form that this process uses."""

    form: str = os.environ.get(VARIABLE) or COMPILED


assert _Process.form in FORMS, f"{VARIABLE}={_Process.form!r} is neither of {FORMS}"


def is_interpreted() -> bool:
    """Return whether construct interprets every message."""
    return _Process.form == CONSTRUCT


def choose_codec(form: str) -> None:
    """Use a form in this process and in those that it starts."""
    assert form in FORMS, f"{form!r} is neither of {FORMS}"
    os.environ[VARIABLE] = _Process.form = form
    for follow in FOLLOWERS:
        follow()

"""How a verb ends: the exit codes that scripts rely on, and a failure that is one clear line."""

from typing import Final, NoReturn

import click

OK: Final = 0
VIOLATED: Final = 1
"""An invariant was violated."""
UNKNOWN: Final = 2
"""Nothing was violated, but an invariant could not be judged, or found nothing to examine where the scenario must exercise it."""
FAILED: Final = 3
"""The verb itself could not do its work: a wrong option, a port in use, a file that is not there."""
INTERRUPTED: Final = 130
"""Ctrl-C, as a shell counts it."""


class Failure(click.ClickException):
    """The verb cannot go on; the message is one line that says what to change."""

    exit_code = FAILED


def fail(trouble: Exception) -> NoReturn:
    """End the verb with the message of an error that was expected to happen."""
    text = trouble.args[0] if isinstance(trouble, KeyError) and trouble.args else trouble
    raise Failure(str(text)) from trouble

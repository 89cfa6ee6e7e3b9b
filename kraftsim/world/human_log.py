"""The log for humans: structlog lines on standard error, in one format for all nodes. Never parsed; facts go to the event log.

structlog is imported when the log is set up and not before: a simulated node and a bench have no use for it.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, TextIO

from kraftsim.world.interface import Clock

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

Values = MutableMapping[str, object]


def set_up_human_log(clock: Clock, *, node: str, incarnation: int, level: str = "info", stream: TextIO | None = None) -> "FilteringBoundLogger":
    """Send human-readable lines to a stream (standard error unless told) and return the node's logger.

    Times come from the node's own clock, because a log that disagrees with the event log helps nobody.
    """
    import structlog

    def stamp(logger: object, method: str, values: Values) -> Values:
        values["t"] = f"{clock.monotonic_ns() / 1e9:.3f}"
        return values

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.LogfmtRenderer(key_order=["t", "level", "node", "incarnation", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: FilteringBoundLogger = structlog.get_logger(node=node, incarnation=incarnation)
    return logger

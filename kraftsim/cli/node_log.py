"""The log of a node process: the options `--log-level` and `--log-format`, and how a node's events
become log lines.

The options are passed in the environment, so that the processes that `up` and scenarios start
inherit them.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure
from kraftsim.cli.options import Verb
from kraftsim.world.human_log import AUTO, LEVELS, STYLES

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from kraftsim.server.operator_log import OperatorLog
    from kraftsim.world.real.world import RealWorld

LEVEL_VARIABLE, FORMAT_VARIABLE = "KRAFTSIM_LOG_LEVEL", "KRAFTSIM_LOG_FORMAT"
DEFAULT_LEVEL = "info"


def log_options(verb: Verb) -> Verb:
    """Add `--log-level` and `--log-format` to a command that starts nodes; the command itself gets
    no argument for them.
    """
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        envvar=LEVEL_VARIABLE,
        default=DEFAULT_LEVEL,
        show_default=True,
        show_envvar=True,
        expose_value=False,
        callback=lambda context, option, value: _export(LEVEL_VARIABLE, value),
        help="Log lines of this level and above.",
    )
    style = click.option(
        "--log-format",
        type=click.Choice(STYLES),
        envvar=FORMAT_VARIABLE,
        default=AUTO,
        show_default=True,
        show_envvar=True,
        expose_value=False,
        callback=lambda context, option, value: _export(FORMAT_VARIABLE, value),
        help="Format of log lines; auto is console on a terminal and logfmt elsewhere.",
    )
    return level(style(verb))


def open_log(world: "RealWorld") -> "tuple[FilteringBoundLogger, OperatorLog]":
    """Set up the log of a node on standard error, and write the lines of its events.

    Call it within the node's event loop.

    Raises Failure for a level or format in the environment that does not exist: not every command
    that starts a node has the options.
    """
    import asyncio

    from kraftsim.server.operator_log import OperatorLog
    from kraftsim.world.human_log import set_up_human_log

    logger = set_up_human_log(
        world.clock,
        node=world.node,
        incarnation=world.incarnation,
        level=_chosen(LEVEL_VARIABLE, DEFAULT_LEVEL, LEVELS),
        style=_chosen(FORMAT_VARIABLE, AUTO, STYLES),
    )
    lines = OperatorLog(logger, asyncio.get_running_loop())
    world.watch(lines.reports, lines.report_slow_disk)
    return logger, lines


def _chosen(variable: str, default: str, choices: Sequence[str]) -> str:
    value = os.environ.get(variable) or default
    if value.lower() not in choices:
        raise Failure(f"{variable}={value}: set it to one of {', '.join(choices)}")
    return value.lower()


def _export(variable: str, value: str) -> None:
    os.environ[variable] = value

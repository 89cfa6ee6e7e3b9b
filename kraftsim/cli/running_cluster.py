"""What the verbs that act on a running cluster share: finding it, naming targets, and reporting the
outcome.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import DIRECTORY

if TYPE_CHECKING:
    from kraftsim.lab.faults.field import Condition

Verb = TypeVar("Verb", bound=Callable[..., object])


def data_option(verb: Verb) -> Verb:
    """Add `--data`; the verb gets `data: Path`."""
    option = click.option(
        "--data",
        type=DIRECTORY,
        default=Path("runs/up"),
        show_default=True,
        help="The --data directory of `up`.",
    )
    return option(verb)


def nodes_argument(*, required: bool) -> Callable[[Verb], Verb]:
    """Add NODE...; the verb gets `nodes: tuple[str, ...]`."""
    return click.argument(
        "nodes", nargs=-1, required=required, metavar="NODE..." if required else "[NODE]..."
    )


def carry_out(
    data: Path,
    verb: str,
    targets: tuple[str, ...],
    condition: "Condition | None" = None,
    *,
    resets: bool = False,
) -> None:
    """Send a command to the cluster of a data directory, and print the result."""
    from kraftsim.cluster.manual_faults import FaultRequest, NotPossible, ask
    from kraftsim.lab.faults.field import Condition

    try:
        lines = ask(
            data,
            FaultRequest(
                verb=verb, targets=targets, condition=condition or Condition(), resets=resets
            ),
        )
    except NotPossible as trouble:
        fail(trouble)
    for line in lines:
        click.echo(line)

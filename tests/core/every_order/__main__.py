"""`make every-order`: all orders of events of producer id allocations, transaction completions and
elections, within the given time.

    python -m tests.core.every_order [--cpu-seconds 60] [--depth 100]

Exit code: 0 no violation, 1 a violation, with the shortest sequence of events that leads to it.
"""

import argparse
import sys
from collections.abc import Callable

from tests.core.every_order.allocation import Allocation
from tests.core.every_order.election import Election
from tests.core.every_order.search import Broken, World, search
from tests.core.every_order.transactions import Endings

WORLDS: dict[str, Callable[[], World]] = {
    "allocation, clients of 3.6 and later": Allocation,
    "allocation, clients before 3.6": lambda: Allocation(waits=True),
    "endings of transactions": Endings,
    "endings of transactions that raise the epoch": lambda: Endings(version=2),
    "election of three voters": Election,
    "election of three voters with pre-votes": lambda: Election(has_pre_vote=True),
}


def main() -> int:
    """Search each world and print how far the search went."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.core.every_order", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--cpu-seconds", type=float, default=60, help="for each world (default: 60)"
    )
    parser.add_argument("--depth", type=int, default=100, help="moves in a row at most")
    given = parser.parse_args()
    print("| world | all orders of | states | moves made | CPU seconds |\n|---|---|---|---|---|")
    status = 0
    for name, new_world in WORLDS.items():
        try:
            found = search(new_world, depth=given.depth, cpu_seconds=given.cpu_seconds)
        except Broken as broken:
            status = 1
            print(f"BROKEN: {name}: {broken}", flush=True)
            continue
        depth = "all moves" if found.is_complete else f"{found.depth} moves"
        print(
            f"| {name} | {depth} | {found.states} | {found.moves} | {found.cpu_seconds:.0f} |",
            flush=True,
        )
    return status


if __name__ == "__main__":
    sys.exit(main())

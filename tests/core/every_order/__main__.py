"""`make every-order`: all orders of events of transactions, producer id allocations and elections,
within bounds that let each search finish, or within the given time.

    python -m tests.core.every_order [--cpu-seconds 150] [--depth 200] [--all-orders] [WORD ...]

Then the historical bugs that the search must find, each with the shortest sequence of events that
leads to it. With words: the worlds and bugs with one of them in their names.
Exit code: 0 no violation, and every bug found; else 1.
"""

import argparse
import sys
import time

from tests.core.every_order.search import Broken, search
from tests.core.every_order.worlds import FOUND, WORLDS, one_producer, parts_of


def main() -> int:
    """Search each world and print how far the search went; then find each bug."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.core.every_order", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("words", nargs="*", help="of the names of worlds or bugs (default: all)")
    parser.add_argument(
        "--cpu-seconds", type=float, default=150, help="for each world (default: 150)"
    )
    parser.add_argument("--depth", type=int, default=200, help="moves in a row at most")
    parser.add_argument(
        "--all-orders", action="store_true", help="also those of moves that commute"
    )
    given = parser.parse_args()

    def is_chosen(name: str) -> bool:
        return not given.words or any(word in name for word in given.words)

    print("| world | all orders of | states | moves made | CPU seconds |\n|---|---|---|---|---|")
    status = 0
    for name, new_world in WORLDS.items():
        if not is_chosen(name):
            continue
        try:
            found = search(
                new_world,
                depth=given.depth,
                cpu_seconds=given.cpu_seconds,
                reduces=not given.all_orders,
            )
        except Broken as broken:
            status = 1
            print(f"BROKEN: {name}: {broken}", flush=True)
            continue
        depth = "all moves" if found.is_complete else f"{found.depth} moves"
        print(
            f"| {name} | {depth} | {found.states} | {found.moves} | {found.cpu_seconds:.0f} |",
            flush=True,
        )
    for name, case in FOUND.items():
        if not is_chosen(name):
            continue
        began = time.process_time()
        try:
            search(
                one_producer(parts_of("4.4", name), case.bounds),
                depth=given.depth,
                cpu_seconds=given.cpu_seconds,
                reduces=not given.all_orders,
            )
        except Broken as broken:
            moves = str(broken).rpartition("after: ")[2].count(", ") + 1
            spent = time.process_time() - began
            print(f"{name}, {moves} moves, {spent:.1f} CPU seconds: {broken}", flush=True)
        else:
            status = 1
            print(f"NOT FOUND: {name}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())

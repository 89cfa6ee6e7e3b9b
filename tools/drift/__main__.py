"""The command line of the drift check; see the package's docstring."""

import argparse
import sys
from pathlib import Path

from tools.drift.comparison import drifts, undeclared
from tools.drift.facts import load_facts, write_facts
from tools.drift.jars import download, read_definitions
from tools.drift.scaffold import scaffold


def main() -> int:
    """Run one command; return 1 if the check finds a drift."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.drift", description=sys.modules["tools.drift"].__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    scaffolding = commands.add_parser("scaffold", help="print declarations")
    scaffolding.add_argument("source", type=Path, help="a jar, a folder of JSON files, or one file")
    scaffolding.add_argument("names", nargs="+", help="names of messages")
    for command, meaning in (
        ("extract", "write the facts"),
        ("check", "compare declarations with the facts"),
    ):
        commands.add_parser(command, help=meaning).add_argument("file", type=Path)
    arguments = parser.parse_args()
    match arguments.command:
        case "scaffold":
            definitions = read_definitions(arguments.source)
            for name in arguments.names:
                print(scaffold(definitions[name]))
        case "extract":
            download()
            write_facts(arguments.file)
        case "check":
            facts = load_facts(arguments.file)
            found = [*drifts(facts), *undeclared(facts)]
            print("\n".join(found) or "no drift")
            return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`kraftsim replay`: repeats a run exactly from its replay file, even if the same seed now draws
other values.
"""

import tempfile
from pathlib import Path

import click

from kraftsim.cli.failure import VIOLATED, Failure, fail
from kraftsim.cli.options import DIRECTORY, json_option, print_lines, write_json


@click.command(
    epilog="""\b
Examples:
  kraftsim replay runs/seven
  kraftsim replay runs/seven/replay.json --out runs/seven-again
  kraftsim replay runs/seven --check
  kraftsim replay runs/seven --without-bugs --out runs/seven-sound
  kraftsim diff runs/seven runs/seven-sound"""
)
@click.argument("file", type=click.Path(exists=True, path_type=Path), metavar="FILE|RUN")
@click.option(
    "--check",
    is_flag=True,
    help="Compare the event logs with those of the first run, and print the first event that "
    "differs.",
)
@click.option("--without-bugs", is_flag=True, help="Run it without the bugs that --bug injected.")
@click.option(
    "--out",
    type=DIRECTORY,
    default=None,
    help="Directory for run.json, event logs and disks of this run.",
)
@json_option
def replay(
    file: Path, check: bool, without_bugs: bool, out: Path | None, json_file: Path | None
) -> int:
    """Repeat a run from its replay.json.

    Exits 1 if an invariant was violated. With --check it exits 0 if both runs are the same, and 1
    if they differ.
    """
    from msgspec import structs

    from kraftsim.lab.explore.replay import read_replay
    from kraftsim.lab.explore.replay_check import check_replay, rerun

    try:
        found = read_replay(file)
        if without_bugs:
            found = structs.replace(found, bugs=())
        if not check:
            result = rerun(found, out)
            print_lines(result)
            write_json(json_file, result)
            return VIOLATED if result.violations else 0
        with tempfile.TemporaryDirectory() as temporary:
            checked = check_replay(
                found,
                recorded=file if file.is_dir() else file.parent,
                out=out or Path(temporary) / "again",
            )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(checked)
    write_json(json_file, checked)
    if checked.events_sha256 is None:
        raise Failure(
            "--check needs a run in virtual time (--mode sim): other runs are not deterministic"
        )
    return 0 if checked.is_same else VIOLATED

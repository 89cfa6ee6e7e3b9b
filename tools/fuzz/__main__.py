"""`make fuzz`: every target for a bounded time, then every value of every byte.

    python -m tools.fuzz [TARGET ...] [--seconds 60] [--by-chance]
    python -m tools.fuzz --again TARGET HEX            run one input, with the full traceback of a
                                                       failure

Targets: requests responses data batches codecs disk every-byte answers. Inputs that reached new
code paths are kept in build/fuzz and reused. Exit code: 0 nothing found, 1 something broke, 3 wrong
arguments.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "build" / "fuzz"
EVERY_BYTE = "every-byte"
ANSWERS = "answers"
NAMES = ("requests", "responses", "data", "batches", "codecs", "disk", EVERY_BYTE, ANSWERS)
LOG_CHARACTERS = 4000
ARTIFACTS = ("crash-*", "timeout-*", "oom-*", "slow-unit-*", "last")


def main() -> int:
    """Run the chosen targets and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="time for each target except every-byte, which runs to its end (default: 60)",
    )
    parser.add_argument(
        "--by-chance",
        action="store_true",
        help="random mutation without atheris, even if it is installed",
    )
    parser.add_argument("--again", nargs=2, metavar=("TARGET", "HEX"), help="run one input")
    chosen = parser.parse_args()
    names = chosen.targets or list(NAMES)
    for name in [*names, *(chosen.again or [])[:1]]:
        if name not in NAMES:
            print(f"unknown target {name} (available: {', '.join(NAMES)})", file=sys.stderr)
            return 3
    if chosen.again:
        return _again(*chosen.again)
    at_random = chosen.at_random or importlib.util.find_spec("atheris") is None
    if at_random and not chosen.at_random:
        print(
            "atheris is not installed: inputs are mutated at random, without coverage guidance",
            flush=True,
        )
    broken = [name for name in names if _is_broken(name, chosen.seconds, at_random=at_random)]
    print(
        f"broken: {', '.join(broken)}" if broken else f"nothing broke in {', '.join(names)}",
        flush=True,
    )
    return 1 if broken else 0


def _is_broken(name: str, seconds: float, *, at_random: bool) -> bool:
    if name == EVERY_BYTE:
        return _every_byte() != 0
    if name == ANSWERS:
        return (
            subprocess.run(
                [sys.executable, "-m", "tools.fuzz.answers", "--seconds", str(seconds)], check=False
            ).returncode
            != 0
        )
    return _run(name, seconds, at_random=at_random) != 0


def _run(name: str, seconds: float, *, at_random: bool) -> int:
    """Fuzz one target in its own process, and print the input that crashed the process, if any."""
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for pattern in ARTIFACTS:
        for left in corpus.glob(pattern):
            left.unlink()
    command = [
        sys.executable,
        "-m",
        "tools.fuzz.one",
        name,
        str(seconds),
        str(corpus),
        *(["--by-chance"] if at_random else []),
    ]
    log = corpus / "log"
    with log.open("wb") as errors:  # atheris names every module that it instruments
        code = subprocess.run(command, check=False, stderr=errors).returncode
    if code not in (0, 1):
        print(
            log.read_text(errors="replace")[-LOG_CHARACTERS:],
            f"{name}: BROKEN, the process ended with {code}",
            flush=True,
        )
        for pattern in ARTIFACTS:
            for artifact in sorted(corpus.glob(pattern)):
                again = f"--again {name} {artifact.read_bytes().hex()}"
                print(f"again: .venv/bin/python -m tools.fuzz {again}", flush=True)
    return code


def _every_byte() -> int:
    """Run one process for each processor that this one may use."""
    shares = len(os.sched_getaffinity(0))
    processes = [
        subprocess.Popen([sys.executable, "-m", "tools.fuzz.every_byte", f"{share}/{shares}"])
        for share in range(shares)
    ]
    return max(process.wait() for process in processes)


def _again(name: str, text: str) -> int:
    from tools.fuzz.guard import Guard
    from tools.fuzz.targets import REFUSALS, TARGETS

    if name == ANSWERS:
        return subprocess.run(
            [sys.executable, "-m", "tools.fuzz.answers", "--again", text], check=False
        ).returncode
    if name == EVERY_BYTE:
        print(
            f"an input of {EVERY_BYTE} has no reproducer: the lines above it have message, "
            "version and bytes",
            file=sys.stderr,
        )
        return 3
    guard = Guard(name, TARGETS[name].check, REFUSALS)
    guard.run(bytes.fromhex(text), timed=False)  # compiles what it needs
    finding = guard.run(bytes.fromhex(text)) or next(iter(guard.findings.values()), None)
    print(finding if finding is not None else "read" if guard.read else "refused, as it should be")
    return 0 if finding is None else 1


if __name__ == "__main__":
    sys.exit(main())

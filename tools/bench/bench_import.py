"""Measures the import time of `protocol`, and of the first use of an API after that.

    python tools/bench/bench_import.py [--rounds 15]

CPU time. Each round is a fresh interpreter with compiled modules (.pyc). First use is everything
from an API key to an encoded and decoded request and response: import of the module, the codecs,
their first call. Codecs come from the store of generated code, which the first round fills;
"generated" is the same with an empty store, "interpreted" with `--codec construct`. The imports
from the standard library (dataclasses, typing, enum, re) are measured separately, because they are
the largest part and depend on the machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from protocol.codec.choice import CONSTRUCT, VARIABLE
from protocol.codec.store import DIRECTORY_VARIABLE
from tools.bench.result import Basis, report_cost

PROJECT_ROOT = Path(__file__).resolve().parents[2]
STANDARD_LIBRARY = "import contextlib, dataclasses, enum, importlib, linecache, re, struct, typing"
FIRST_USE = """
request, response = protocol.request_class({key}), protocol.response_class({key})
for cls in (request, response):
    codec = protocol.codec_of(cls, {version})
    codec.decode(codec.encode(cls()))
"""
CASES = (
    ("the standard library's part", "", STANDARD_LIBRARY),
    ("import protocol", "", "import protocol"),
    ("import construct, which a node does not need", "", "import construct"),
    ("first use of InitProducerId v4", "import protocol", FIRST_USE.format(key=22, version=4)),
    ("first use of Produce v9", "import protocol", FIRST_USE.format(key=0, version=9)),
    ("first use of Metadata v12", "import protocol", FIRST_USE.format(key=3, version=12)),
    ("first use of Fetch v12", "import protocol", FIRST_USE.format(key=1, version=12)),
)
NAMES = {
    "the standard library's part": "standard_library",
    "import protocol": "protocol",
    "import construct, which a node does not need": "construct",
    "first use of InitProducerId v4": "init_producer_id",
    "first use of Produce v9": "produce",
    "first use of Metadata v12": "metadata",
    "first use of Fetch v12": "fetch",
}
FORM_MARK = ", codec "
GENERATED, INTERPRETED = "generated", "interpreted"
FORMS = (
    ("first use of InitProducerId v4", FIRST_USE.format(key=22, version=4)),
    ("first use of Fetch v12", FIRST_USE.format(key=1, version=12)),
)


def main(arguments: list[str] | None = None) -> int:
    """Measure in turns and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    seconds: dict[str, list[float]] = {title: [] for title, _, _ in CASES}
    for round_number in range(options.rounds + 1):
        for title, before, measured in CASES:
            once = _fresh(before, measured)
            if round_number:  # the first one writes the .pyc files and fills the store
                seconds[title].append(once)
        for title, measured in FORMS:
            for form in (GENERATED, INTERPRETED):
                once = _fresh("import protocol", measured, form)
                if round_number:
                    seconds.setdefault(f"{title}{FORM_MARK}{form}", []).append(once)
    for title, all_of_them in seconds.items():
        words, _, form = title.partition(FORM_MARK)
        name = f"import.{NAMES[words]}{'.' + form if form else ''}"
        milliseconds = [each * 1e3 for each in all_of_them]
        report_cost(name, title, "ms", milliseconds, basis=Basis.CPU)
    return 0


def _fresh(before: str, measured: str, form: str = "") -> float:
    program = (
        f"{before}\nfrom time import process_time\nstarted = process_time()\n{measured}\n"
        "print(process_time() - started)"
    )
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    with tempfile.TemporaryDirectory() as empty:
        if form == GENERATED:
            environment[DIRECTORY_VARIABLE] = empty
        elif form == INTERPRETED:
            environment[VARIABLE] = CONSTRUCT
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=PROJECT_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())

"""A pinned process is reproducible even where it depends on hashes and addresses."""

import os
import subprocess
import sys

PROGRAM = """
import sys
from kraftsim.world.simulated.launcher import relaunch_pinned
pinning = relaunch_pinned(sys.orig_argv[1:])
import os, time
extensions = os.environ["AIOKAFKA_NO_EXTENSIONS"]
print(pinning.hash_seed, pinning.addresses, extensions, time.time.__module__, sys.argv[1:])
by_address = (hash(None), [*{"a", "b", "c", None, (None, "x")}]) if pinning.addresses else (0, 0)
print(hash("broker-1"), *by_address)
"""


def test_pinned_process_has_the_same_hashes_every_time() -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONHASHSEED", "KRAFTSIM_PINNED")
    }
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, "one", "two words"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        for _ in range(3)
    ]
    assert len({run.stdout for run in runs}) == 1
    first_line = runs[0].stdout.splitlines()[0]
    assert first_line.startswith("True") and first_line.endswith(
        "1 kraftsim.world.simulated.ambient ['one', 'two words']"
    )
    refused = first_line.split()[1] == "False"
    assert ("could not be fixed" in runs[0].stderr) == refused, "the refusal is reported"

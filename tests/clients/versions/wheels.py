"""Libraries of PyPI in separate directories, pinned by the hashes of their file in requirements/,
and the programs that use them.
"""

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.apache_kafka.class_path import PROJECT_ROOT, Missing

BUILT = PROJECT_ROOT / "build" / "clients" / "python"
REQUIREMENTS = Path(__file__).parent / "requirements"
PROGRAMS = Path(__file__).parent / "programs"
PLATFORMS = (
    "manylinux1_x86_64",
    "manylinux2010_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
PIP_SECONDS = 300


def python_command(program: str, pinned: str) -> Sequence[str]:
    """Return the command of a program with the pinned library, or that of this environment if none
    is pinned.

    Raises Missing.
    """
    file = str(PROGRAMS / f"{program}.py")
    if not pinned:
        return [sys.executable, file]
    return [
        "env",
        f"PYTHONPATH={library(pinned)}",
        sys.executable,
        "-S",
        "-s",
        "-W",
        "ignore",
        file,
    ]


def librdkafka_command(version: str, tag: str) -> Sequence[str]:
    """Return the command of the program with the librdkafka in a wheel for another Python, or that
    of this environment.

    Raises Missing.
    """
    if version:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            raise Missing(f"librdkafka {version} has a wheel for Linux on x86-64 only")
        abi = f"{tag}m" if tag == "cp37" else tag
        other = [word for each in PLATFORMS for word in ("--platform", each)]
        where = library(
            f"librdkafka-{version}",
            "--python-version",
            tag.removeprefix("cp"),
            "--implementation",
            "cp",
            "--abi",
            abi,
            *other,
        )
    else:
        found = importlib.util.find_spec("confluent_kafka")
        assert found is not None and found.origin is not None, (
            "confluent-kafka is pinned in requirements.lock"
        )
        where = Path(found.origin).parents[1]
    for directory in (where / "confluent_kafka.libs", where / "confluent_kafka" / ".libs"):
        if directory.is_dir():
            return [sys.executable, str(PROGRAMS / "by_librdkafka.py"), str(directory)]
    raise Missing(f"there is no bundled librdkafka in {where}")


def library(pinned: str, *options: str) -> Path:
    """Return the directory of a library; pip installs it the first time, or when its pins have
    changed.

    Raises Missing.
    """
    pins = REQUIREMENTS / f"{pinned}.txt"
    directory = BUILT / pinned
    installed = directory / "pins.txt"
    if installed.exists() and installed.read_text() == pins.read_text():
        return directory
    BUILT.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=BUILT))
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    words += ["--require-hashes", "--target", str(fresh), "-r", str(pins), *options]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=PIP_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        shutil.rmtree(fresh)
        raise Missing(f"pip could not bring {pinned}: {done.stderr.strip()[-300:]}")
    (fresh / "pins.txt").write_text(pins.read_text())
    shutil.rmtree(directory, ignore_errors=True)
    try:
        fresh.rename(directory)
    except OSError:
        assert installed.exists(), "a concurrent process may have installed it first"
        shutil.rmtree(fresh)
    return directory

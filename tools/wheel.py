"""Builds the wheel: `protocol` and `scenarios`, which lie at the top of the source tree, are
installed inside `kraftsim`.

A wheel that put packages of such common names beside those of its users would break every project
that has its own. So the built copies lie in `kraftsim/protocol` and `kraftsim/scenarios`, and their
import statements, and those of `kraftsim`, name them there. The source tree is not changed, and an
editable install uses it as it is.
"""

import ast
import shutil
from pathlib import Path
from typing import Final

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

HOME: Final = "kraftsim"
TOP_LEVEL: Final = (HOME, "pyspark_kafka_log")
"""Spark looks for data sources in packages at the top whose names begin with `pyspark_`."""
MOVED: Final = ("protocol", "scenarios")


class BuildPackages(build_py):  # type: ignore[misc]  # setuptools has no types
    """Copies the packages into the build directory, and moves two of them there."""

    def run(self) -> None:
        """Build, from nothing: a former build would leave modules that exist no more."""
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        shutil.rmtree(built / HOME, ignore_errors=True)
        super().run()
        for package in MOVED:
            shutil.move(built / package, built / HOME / package)
        for file in sorted((built / HOME).rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            file.write_text(with_new_homes(source), encoding="utf-8")


class DescribePackages(egg_info):  # type: ignore[misc]  # setuptools has no types
    """Names the packages that an installed wheel has at the top."""

    def run(self) -> None:
        """Write the metadata."""
        super().run()
        (Path(self.egg_info) / "top_level.txt").write_text(
            "\n".join(TOP_LEVEL) + "\n", encoding="utf-8"
        )


def with_new_homes(source: str) -> str:
    """Return the text of a module whose import statements name the moved packages where the wheel
    has them.

    `import protocol.x` without `as` would bind another name there, and is refused: ValueError.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_moved(node.module or ""):
            _rename(lines, node.lineno, node.col_offset, "from ")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if not _is_moved(alias.name):
                    continue
                if alias.asname is None or len(node.names) > 1:
                    raise ValueError(f"line {node.lineno}: write `import {alias.name} as NAME`")
                _rename(lines, node.lineno, node.col_offset, "import ")
    return "".join(lines)


def _rename(lines: list[str], number: int, column: int, keyword: str) -> None:
    """Put the new home before the name that follows the keyword."""
    line = lines[number - 1].encode()  # columns of a syntax tree are bytes
    start = column + len(keyword)
    assert line[column:start].decode() == keyword, f"line {number}: {line.decode()}"
    lines[number - 1] = (line[:start] + f"{HOME}.".encode() + line[start:]).decode()


def _is_moved(module: str) -> bool:
    return module.partition(".")[0] in MOVED

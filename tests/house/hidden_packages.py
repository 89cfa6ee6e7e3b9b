"""Hides the packages of extras from a process, as in an environment with a plain installation of
kraftsim.
"""

import os
from pathlib import Path

from kraftsim.cli.failure import EXTRA_OF_PACKAGE

SITE = """\
import sys

HIDDEN = {hidden!r}


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def environment_without_extras(directory: Path) -> dict[str, str]:
    """Return the environment of a process that finds no package of an extra; its children find none
    either.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(SITE.format(hidden=tuple(sorted(EXTRA_OF_PACKAGE))))
    return {**os.environ, "PYTHONPATH": str(directory)}

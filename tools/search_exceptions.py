"""What a campaign never exercises, and why that is accepted.

tests/simulate/test_search_coverage.py fails for everything else.
"""

from collections.abc import Mapping
from typing import Final

NEVER_DRAWN: Final[Mapping[str, str]] = {}
"""Kinds of faults that no schedule of any scenario has."""
NEVER_EFFECTIVE: Final[Mapping[str, str]] = {}
"""Kinds, APIs (`EndTxn of clients`) and errors (`error=NAME`) without effect in the kept record."""
NEVER_ASKED: Final[Mapping[str, str]] = {}
"""APIs that nodes or clients exchange, and no fault space declares."""

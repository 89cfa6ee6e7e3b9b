"""Computes what the claims page shows of a row from the results of its checks."""

from collections.abc import Mapping

from tools.claims.record import Measured, RowResult
from tools.claims.row import FAILED, Row, joined


def row_result(row: Row, checks: Mapping[str, Measured]) -> RowResult:
    """Return a row with its verdict and sentence; `not shown`, with the reason, if a check or a
    figure is missing.
    """
    lacking = [name for name in row.checks if name not in checks or not checks[name]["passed"]]
    verdict, sentence = FAILED, f"not run, or failed: {', '.join(lacking)}"
    if not lacking:
        try:
            figures = joined({name: checks[name]["figures"] for name in row.checks})
            verdict, sentence = row.verdict(figures, passed=True), row.sentence(figures)
        except (KeyError, NameError, ValueError, TypeError) as trouble:
            sentence = f"{type(trouble).__name__}: {trouble}"
    return RowResult(
        id=row.id,
        starred=row.starred,
        kind=row.kind,
        claim=row.claim,
        shipped=row.shipped,
        checks=list(row.checks),
        conditions=row.conditions,
        verdict=verdict,
        argued=row.argued,
        measured=sentence,
    )

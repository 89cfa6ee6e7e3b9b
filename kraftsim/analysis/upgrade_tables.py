"""The chapter on upgrades and migrations in the report: three tables.

Text from a run reaches the page as text only.
"""

import html
from collections.abc import Iterable, Sequence

from kraftsim.analysis.upgrade_chapter import UpgradeChapter
from kraftsim.analysis.witnesses import printable


def upgrade_html(chapter: UpgradeChapter | None) -> str:
    """Return the chapter, or nothing if a run has none."""
    if chapter is None:
        return ""
    moments = [
        (f"{moment.t_ns / 1e9:,.3f}", moment.node, moment.what) for moment in chapter.moments
    ]
    left_out = chapter.moment_count - len(moments)
    return "\n".join(
        (
            '<section class="chapter" id="upgrade"><h2>Upgrade and migration</h2>',
            _table("Changes of nodes", ("second", "node", "what changed"), moments),
            f'<p class="quiet">{left_out:,} more changes are in the event log.</p>'
            if left_out
            else "",
            _table(
                "Blocks of producer ids",
                ("phase", "block", "times"),
                [(each.phase, each.what, f"{each.times:,}") for each in chapter.blocks],
            ),
            _table(
                "Errors that clients saw",
                ("phase", "error", "times"),
                [(each.phase, each.what, f"{each.times:,}") for each in chapter.errors],
            ),
            "</section>",
        )
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    if not body:
        return f'<h3>{_text(title)}</h3><p class="quiet">None.</p>'
    heads = "".join(f"<th>{_text(each)}</th>" for each in head)
    return (
        f"<h3>{_text(title)}</h3><table><thead><tr>{heads}</tr></thead><tbody>{body}"
        "</tbody></table>"
    )


def _text(value: str) -> str:
    return html.escape(printable(value))

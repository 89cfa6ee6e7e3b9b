"""docs/performance.md and its plot are what the records of speed give."""

from tools.bench.goals import goals
from tools.bench.record import read_history
from tools.docs.performance_page import PAGE, PLOT, performance_page
from tools.docs.performance_plot import history_plot

AGAIN = "run: python -m tools.bench page"


def test_the_page_is_that_of_the_newest_record() -> None:
    assert PAGE.read_text() == performance_page(read_history()), AGAIN
    assert PLOT.read_text() == history_plot(read_history()), AGAIN


def test_the_page_has_each_figure_and_what_is_missing() -> None:
    newest, text = read_history()[-1], PAGE.read_text()
    assert newest.figures and not [
        each.name for each in newest.figures if f"| `{each.name}` |" not in text
    ]
    left_out = [name for name, each in newest.benches.items() if not each.figures]
    assert not [name for name in left_out if f"`{name}`" not in text.partition("Not in the")[2]]


def test_the_page_of_no_record_says_so() -> None:
    assert "There is no record yet." in performance_page([])


def test_the_plot_has_the_figures_with_a_goal() -> None:
    names = {each.name for kept in read_history() for each in kept.figures}
    drawn = history_plot(read_history())
    assert not [name for name in goals() if (f">{name}</text>" in drawn) is not (name in names)]


def test_records_do_not_name_a_host() -> None:
    import platform

    assert not [
        record.commit for record in read_history() if platform.node() in str(record.machine).split()
    ]

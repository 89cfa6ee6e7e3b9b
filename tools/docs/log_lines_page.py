"""The page of log lines, generated from the table of messages."""

from kraftsim.server.operator_log import (
    LINES_MAX,
    MESSAGES,
    NAMED_MAX,
    SLOW_FLUSH_SECONDS,
    SUMMARY_SECONDS,
    WINDOW_SECONDS,
)


def log_lines_page() -> str:
    """Return the page of all log lines of a node, with the event of each."""
    lines = [
        "# Log lines\n",
        (
            "A node process writes log lines for operators to standard error; `kraftsim up` keeps "
            "them in `DATA/logs/NODE.log`."
        ),
        (
            "They are derived from the [events](events.md), so a line contains nothing that is not "
            "in the event log.\n"
        ),
        "```text",
        (
            "$ kraftsim up --log-format json --log-level warning      # auto, logfmt, console or "
            "json; debug, info, warning or error"
        ),
        "$ KRAFTSIM_LOG_FORMAT=console kraftsim node broker.properties",
        "```\n",
        (
            "`auto` is `console` on a terminal and `logfmt` elsewhere. Every line has `t` (seconds "
            "since the run began, as in the event log),"
        ),
        (
            "`level`, `node`, `incarnation` and `event`; JSON adds `time`, the node's wall clock "
            "in UTC. Control characters are escaped.\n"
        ),
        (
            f"A text appears at most {LINES_MAX} times in {WINDOW_SECONDS:g} s; then a line with "
            "`suppressed` counts the rest."
        ),
        (
            f"A *summary* collects {SUMMARY_SECONDS:g} s of events into one line with their "
            f"`count` and the first {NAMED_MAX} partitions."
        ),
        (
            f"A flush, a replaced file or a rename that takes {SLOW_FLUSH_SECONDS:g} s or more is "
            "the warning `slow disk`.\n"
        ),
        "| level | text | event | |",
        "|---|---|---|---|",
    ]
    for kind, message in MESSAGES.items():
        lines.append(
            (
                f"| {message.level} | `{message.text}` | {kind} | "
                f"{'summary' if message.is_summary else ''} |"
            ).replace("|  |", "| |")
        )
    lines.append(
        "\n`starting`, `listening`, `serving`, `stopping` and `stopped` mark the lifecycle of "
        "the process."
    )
    return "\n".join(lines) + "\n"

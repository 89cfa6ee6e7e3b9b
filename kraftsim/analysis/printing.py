"""Text for a terminal: some of the values of a run are chosen by clients."""


def printable(value: int | str | bool) -> str:
    """Return a value as text that cannot move the cursor or end the line."""
    text = str(value)
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    )

"""One module per scenario; each runs a whole cluster in any of the three modes."""

"""Tools of the code base: not part of the wheel."""

"""Whole clusters: specified, composed and launched, in any of the three modes."""

"""One script per story; each drives a whole cluster in any of the three modes."""

"""What five design documents claim: each claim a row, what plays it, and the verdict that follows from what was measured (`make claims`)."""

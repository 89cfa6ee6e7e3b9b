"""What six design documents claim: one row per claim, the checks for it, and the verdict derived
from the measured figures (`make claims`).
"""

"""The variants of producer-id allocation in KIP-730, in virtual time: lost ids, stalls, and how
long 2^63 ids last.
"""

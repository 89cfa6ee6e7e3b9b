"""Members of an exactly-once app, and the effects when one of them is killed, paused, or uses an
old protocol (KIP-447).
"""

"""Records and what they are packed in: batches and message sets of all formats, their compression,
control records, frames of metadata records.
"""

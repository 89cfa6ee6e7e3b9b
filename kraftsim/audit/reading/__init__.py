"""Reads the files of log directories into the rows of `kraftsim.audit.tables`.

    disks          lists directories and reads pieces of files, here and in object stores
    layout         says what each file of a log directory is, by its name
    segments       record batches, headers in one sweep of numpy
    internal       records of the metadata log and of the coordinators' topics
    indexes        offset, time and transaction indexes, held against their segment
    small_files    snapshots, checkpoints, and the files of a log directory itself
    remote         files of remote storage
    pieces         rows on their way to Arrow and Parquet

What cannot be read is a row of `problems`; nothing here raises for what a file contains.
"""

"""Analysis of the event logs of a run: one Parquet file per run, verdicts by Spark, and an HTML
report.

Spark and its Java are started only to check a run; reading, ingest and the report of a run that was
analysed before need neither.
"""

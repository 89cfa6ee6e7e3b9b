"""What a run's event log tells: one Parquet file per run, verdicts by Spark, and a report to look at.

Only `session`, `views` and `verdicts` need Spark, and they import it when they are used: ingest and report work on a machine without Java.
"""

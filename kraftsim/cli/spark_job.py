"""The job for `spark-submit`: the command line of kraftsim, in the session of the job.

    spark-submit --master spark://HOST:7077 $(python -m kraftsim.cli.spark_job) analyze runs/large

Outside of spark-submit it prints its own path.
"""

import os


def main() -> None:
    """Run a verb in the session of `spark-submit`."""
    from kraftsim.analysis.session import SUBMITTED

    if SUBMITTED not in os.environ:
        print(__file__)
        return
    from kraftsim.cli import main as command_line

    command_line.main()


if __name__ == "__main__":
    main()

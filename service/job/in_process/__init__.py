"""Tasks of the job, run in this process without Spark, for calibration and tests.

Doors: in_process_job.
"""

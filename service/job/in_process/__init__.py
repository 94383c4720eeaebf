"""Tasks of the job, run in this process without Spark: calibration and tests measure them in this way.

Doors: in_process_job.
"""

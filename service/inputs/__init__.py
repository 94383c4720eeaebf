"""Inputs: what a stream's source holds, in which order it is admitted, and how readers get its rows.

    validate.py     a source that cannot be meant is refused before it is registered
    files.py        lists whole files durably, with verdict, rows and time range   (main process)
    http_log.py     posted events, durable before they are acknowledged            (main process)
    generator.py    synthetic rows, by chunk, the same for the same seed
    inputs.py       pieces to admit and partitions to read, without side effects   (driver side)
    admission.py    how far each stream advances in the next batch                 (driver side)
    read.py         the rows of one partition                                      (workers)
    partitions.py   the values that travel between them

A position counts files, event offsets or chunks of one stream; it only grows. A row's own position,
``_pos``, is unique in its stream and ascends in source order.
"""

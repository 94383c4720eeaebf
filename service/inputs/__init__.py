"""Inputs: the data behind a stream's source, and how readers get its rows.

    source_roots the directories that streams registered with the service may read from
    validate     refuses an unusable source before it is registered
    messages     messages of topics as events
    sources      files listed durably, posted events, generated rows                (main process)
    inputs       pieces to admit and partitions to read, without side effects       (driver side)
    disk_space   makes input wait for space on the disk                  (driver side, main process)
    read         the rows of one partition                                          (workers)
    partitions   the values passed between these modules
    voided       input that an operator has voided for a batch, and its rows

A position counts files, event offsets or chunks of one stream; it only grows. A row's own position,
``_pos``, is unique in its stream and ascends in source order.

Doors: disk_space, inputs, partitions, read, sample, source_roots, validate, voided.
"""

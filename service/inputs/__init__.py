"""Inputs: find out what data the source of a stream has, and read its rows.

    checks       refuses an unusable source before it is registered
    messages     messages of topics as events
    sources      files listed durably, posted events, topics, generated rows        (main process)
    inputs       pieces to admit and partitions to read, without side effects       (driver side)
    limits       makes input wait for space on the disk                  (driver side, main process)
    reading      the rows of one partition                                          (workers)
    partitions   the values passed between these modules

The position of a stream counts its files, event offsets or chunks, and only grows. The position of a row,
``_pos``, is unique in the row's stream and ascends in source order.

Doors: inputs, partitions.
"""

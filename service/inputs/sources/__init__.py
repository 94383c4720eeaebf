"""Sources: listed files, posted events and generated rows.

Doors: backlog, distributions, event_reader, files, generator, http_log, opened_file, promises,
topic_reader, topics.
"""

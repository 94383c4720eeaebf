"""Posted events: the durable log of events, and the punctuations that clients post with them.

Doors: event_reader, http_log, promises.
"""

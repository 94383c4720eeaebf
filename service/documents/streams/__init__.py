"""Documents of streams: columns, source, dialect, and what the stream promises about its rows.

Doors: contract_document, stream_document.
"""

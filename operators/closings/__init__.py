"""Keys that a stream has closed by punctuations: no later row of the stream has them.

Doors: closed_keys, closing_rows, contract.
"""

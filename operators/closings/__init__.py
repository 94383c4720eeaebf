"""Keys that a stream has closed by punctuations: no later row of it has them.

Doors: closed_keys, closing_rows, contract.
"""

"""Keys that a stream has closed by punctuations: no later row of it has them.

Doors: closed_keys, closed_opposite, closing_rows, contract, derived, search_time.
"""

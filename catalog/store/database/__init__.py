"""The database: its connections and transactions, its tables, and the base class of repositories.

Doors: database, repository, tables.
"""

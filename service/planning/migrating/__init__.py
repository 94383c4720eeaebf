"""Migrations: requests for another plan of the same queries, their price and their outcome.

Doors: migration_price, migrations, resolve_migration.
"""

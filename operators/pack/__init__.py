"""PACK: rows of one partition become one payload per bucket.

Doors: pack, pack_plan, payload.
"""

"""The dialect of CQL: its grammar, the locations of errors, and conditions in one syntactic form.

Doors: cql, locate, normalize.
"""

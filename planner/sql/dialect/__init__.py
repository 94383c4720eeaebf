"""The dialect of CQL: its grammar, where parts are in the text, and conditions in one syntactic form.

Doors: cql, locate, normalize.
"""

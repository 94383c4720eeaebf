"""Conversion: converts values of files and messages to the stream's types, or names an option that helps.

Doors: options, times, values.
"""

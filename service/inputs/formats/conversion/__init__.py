"""Conversion: values of files and messages become the declared types, or an error that can advise.

Doors: options, times, values.
"""

"""Previews and primitives as JSON values.

Doors: preview_document, primitive_document.
"""

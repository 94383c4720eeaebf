"""Explaining: plans, costs and changes as documents, graphs and text.

Doors: explain, plan_report, preview, preview_document, primitive_document, render.
"""

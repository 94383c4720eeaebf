"""Migrations over HTTP."""

"""tests.catalog"""

"""tests.operators"""

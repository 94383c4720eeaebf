"""tests.crash"""

"""tests.service"""

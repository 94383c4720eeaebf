"""tests.service.recovery"""

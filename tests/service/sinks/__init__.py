"""tests.service.sinks"""

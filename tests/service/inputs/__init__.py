"""tests.service.inputs"""

"""service.sinks"""

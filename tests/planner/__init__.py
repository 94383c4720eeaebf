"""tests.planner"""

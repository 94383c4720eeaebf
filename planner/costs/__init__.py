"""planner.costs"""

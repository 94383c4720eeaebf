"""planner.strategies"""

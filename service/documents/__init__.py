"""Documents: conversion of YAML, workload files and request bodies to values, with located errors.

Doors: migration_document, statistics_document, workload.
"""

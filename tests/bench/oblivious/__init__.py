"""Experiments of Window-Oblivious Join (Wu, Tan, Zhou) and of WNL and WHJ (Kostowski, Claypool)."""

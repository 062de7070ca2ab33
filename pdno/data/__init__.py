"""Pairs (a, u): in memory, in our store, in other people's files."""

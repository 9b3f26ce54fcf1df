"""Runs without an algorithm: what is chosen runs in stages, until one of them needs no other."""

"""Peers: agents of different owners, each in a process of its own."""

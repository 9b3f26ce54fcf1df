"""Agents in several processes: what they hear of agents elsewhere, whatever carries it there.

MPI between the processes of one owner, TLS between those of several: each brings a `Wire`.
"""

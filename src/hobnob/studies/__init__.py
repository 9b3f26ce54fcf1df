"""The paper's experiments and claims, and comparisons: `hobnob reproduce` and `hobnob compare`.

A study plans cells, each a measurement of its own; a pool of processes carries them out; the study
makes a report of what was found.
"""

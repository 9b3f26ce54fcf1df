"""The paper's experiments and claims, and comparisons: `hobnob reproduce` and `hobnob compare`.

A study plans cells, which are independent measurements. A pool of processes runs them, and the
study turns their results into a report.
"""

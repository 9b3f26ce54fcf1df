"""hobnob: decentralised bilevel optimisation."""

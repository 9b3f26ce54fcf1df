"""The nouns: problem, data, network, links, agent, algorithm, ledger, and the seams of a run."""

"""Where agents live: a runtime lifts the step of one agent to the whole network."""

from hobnob.runtimes.simulate import Simulate

__all__ = ["Simulate"]

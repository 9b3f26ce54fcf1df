"""Measuring a run and keeping what was measured: metrics, recorder, checkpoints."""

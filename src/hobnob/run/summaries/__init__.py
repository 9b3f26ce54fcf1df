"""What pages show of a run: numbers and sentences, computed here and drawn elsewhere."""

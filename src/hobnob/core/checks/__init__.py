"""What is checked of a problem: its shards and its start, and which program it is."""

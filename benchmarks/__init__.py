"""How fast, how large: `make bench` for the whole table, `make bench-check` for what fell."""

"""What everything stands on: errors, files, keys, random bits, pytrees, the terminal."""

"""The foundation: errors, files, keys, random bits, pytrees, the terminal."""

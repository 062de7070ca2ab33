"""The law of what a mean operator leaves: its scale, its size for each input, its repeats."""

"""What the commands do with the folder of a run."""

"""Where work is done and what survives a `kill -9`: processes, files, progress."""

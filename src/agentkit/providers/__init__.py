"""Models: one vendor protocol a file, transports, servers as data, and models on this machine."""

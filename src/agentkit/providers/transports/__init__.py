"""How bytes get to a model's server and back: one port, one file for each library that carries them."""

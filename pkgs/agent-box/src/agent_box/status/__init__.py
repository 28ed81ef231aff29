"""How the units of the box and its certificate are, told to users without a system bus."""

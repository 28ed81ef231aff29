"""Who eats, pays: when memory is short, it ends something of the user who uses most of it."""

"""Networks of users: made as root at the start of the box, before anything of theirs runs."""

"""An attacker's battery: classes of attack, carried out on whatever the box happens to have.

Sockets, routes, units and paths are discovered, on the running box and in its rendered units. What
somebody adds to the product is attacked without anybody adding a line here; only what has a reason
to be different is named, with that reason, in `sockets-and-paths.toml`.

`guest/` holds the programs that run inside: with the standard library alone, each carries out one
kind of attack, or looks at what root alone sees, and tells what came of it as JSON.
"""

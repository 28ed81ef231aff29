"""Speed and cost of a box, measured at native speed and printed beside the reference's figures.

`measure` does the measuring against a running supervisor and needs nothing but the runtime, so
that it also runs inside a guest. `host` starts a private supervisor on this machine, `guest`
uses the container guest and times boots, `table` prints.
"""

"""The gate: who may enter the box from a browser. See DESIGN.md, section 7."""

# The policy of whatever a process of a user says: nothing of it runs or is taken for a page of
# the box. A browser shows pictures and text in a page of its own.
"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

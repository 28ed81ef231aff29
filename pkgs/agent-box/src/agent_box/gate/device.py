"""What to call a browser in the list of logins, from its `User-Agent`."""

from __future__ import annotations

# The first hit counts: most browsers also claim to be one of the later ones.
_PROGRAMS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("Vivaldi", "Vivaldi"),
    ("FxiOS", "Firefox"),
    ("Firefox", "Firefox"),
    ("CriOS", "Chrome"),
    ("HeadlessChrome", "Chrome (headless)"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("Wget", "Wget"),
    ("python-requests", "Python"),
    ("Python-urllib", "Python"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
)


def label(user_agent: str) -> str:
    """Return a few plain words, none of them the client's own."""
    program = next((name for mark, name in _PROGRAMS if mark in user_agent), "Unknown browser")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), None)
    return f"{program} on {system}" if system else program

"""The box in a browser for one user: workspace, settings, JSON API, events and files."""

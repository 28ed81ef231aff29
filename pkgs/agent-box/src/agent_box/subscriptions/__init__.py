"""What sessions subscribed to: topics, rules and the files that hold them.

Shared by the webhook service, its command line, the settings page and the supervisor, and by the
local-webhook plugin of Claude sessions, which reads and writes the same files.
"""

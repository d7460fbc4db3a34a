"""Authenticates clients by a password in a users file or by a JSON web token. For listeners and HTTP
servers.
"""

from penstock.errors import PenstockError


class LoginFailed(PenstockError):
    """A rejected login. The text is for the server's log, not for the client."""

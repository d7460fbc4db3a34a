"""Who a client is: by a password in a users file, or by a JSON web token. Of listeners and HTTP servers."""

from penstock.errors import PenstockError


class LoginFailed(PenstockError):
    """A login that is not accepted. The text is for the server's log, not for the client."""

"""Secrets kept out of logs, records and output: by what they look like, and by what was declared.

A secret that is printed ends up in a file that a person may share. Masking can't be complete; it
takes out what has the form of a known kind of key, and every value that the workspace itself
declares under a name that speaks of one.
"""

import re
from collections.abc import Iterable, Mapping

MASK = "***"
WITHHELD = "[withheld: it could not be searched for secrets]"
# Shorter values are words that occur anywhere: masking them would take the text apart.
_SHORTEST = 8
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|DSN|PRIVATE", re.IGNORECASE
)
# Forms that their makers document; each alternative begins with letters that are rare in text.
_FORMS = re.compile(
    r"""
      \bsk-[A-Za-z0-9_-]{16,}                        # OpenAI, Anthropic
    | \bgh[pousr]_[A-Za-z0-9]{20,}
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}               # Slack
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                  # AWS
    | \bAIza[A-Za-z0-9_-]{30,}                       # Google
    | \bya29\.[A-Za-z0-9_-]{20,}
    | \b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}         # Stripe
    | \bhf_[A-Za-z0-9]{20,}
    | \beyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]{6,}           # JSON web tokens
    | (?<=[Bb]earer[ ])[A-Za-z0-9._~+/=-]{12,}
    | (?<=://)[^\s/:@]{1,100}:[^\s/@]{3,200}(?=@)    # user and password in a URL
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.VERBOSE | re.ASCII,
)


def speaks_of_secret(name: str) -> bool:
    """Return whether a variable or a header of that name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def declared_secrets(*environments: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables whose names speak of a secret, longest first."""
    found = {
        value.strip()
        for environment in environments
        for name, value in environment.items()
        if speaks_of_secret(name) and len(value.strip()) >= _SHORTEST
    }
    return tuple(sorted(found, key=_order))


def _order(value: str) -> tuple[int, str]:
    return -len(value), value


class Masker:
    """Takes secrets out of text.

    Args:
        secrets: Values that are taken out wherever they stand, besides what has a known form.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: a secret that contains another must not leave its rest behind.
        ordered = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=_order)
        known = [re.escape(secret) for secret in ordered]
        self._known = re.compile("|".join(known)) if known else None

    def mask(self, text: str) -> str:
        """Return *text* with `***` in the place of each secret.

        A text that can't be searched is withheld whole: better no log than a key in it.
        """
        try:
            if self._known is not None:
                text = self._known.sub(MASK, text)
            return _FORMS.sub(MASK, text)
        except (re.error, MemoryError, RecursionError):
            return WITHHELD

    def mask_bytes(self, data: bytes) -> bytes:
        """Return *data* as `mask` does; bytes that are no text stay as they are."""
        return self.mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

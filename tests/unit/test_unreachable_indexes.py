"""What is said of an index that cannot be reached: its address and the last cause, and what a check can do then."""

from __future__ import annotations

from support.rows import rows

from builder.lock.session import make_unreachable_error, shorten_reason
from builder.resolve.checks.closure import make_unknown_finding

CHAIN = (
    "error: Request failed after 3 retries in 7.6s cause: Failed to fetch: https://example.org/whl/torch/ cause: error "
    "sending request for url (https://example.org/whl/torch/) cause: client error (Connect) cause: dns error "
    "cause: failed to lookup address information: Name or service not known"
)
SHORT = "https://example.org/whl/torch/: failed to lookup address information: Name or service not known"


@rows(("reason", "shown"), [(CHAIN, SHORT), ("connection refused", "connection refused"), ("a cause: b", "a cause: b")])
def test_a_chain_of_causes_is_its_address_and_its_end(reason: str, shown: str) -> None:
    assert shorten_reason(reason) == shown


def test_a_check_names_no_option_of_a_lock() -> None:
    (locked,) = make_unreachable_error("an index", CHAIN).findings
    checked = make_unknown_finding("the packages", locked)
    assert checked.message == f"the packages were judged by name, not looked up: an index could not be reached: {SHORT}"
    assert checked.fix == "check where it can be reached, or set https_proxy (check it if it is set)"
    assert "--offline" in locked.fix

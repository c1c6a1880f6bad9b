"""Secrets out of sight."""

from __future__ import annotations

from support.rows import rows

from builder.model.secrets import Mask


@rows(
    ("environment", "text", "expected"),
    [
        ({"HF_TOKEN": "hf_abcdef"}, "login with hf_abcdef now", "login with *** now"),
        ({"APPTAINER_DOCKER_PASSWORD": "s3cr3t"}, "s3cr3ts3cr3t", "******"),
        ({"MY_SECRET": "a.b*c"}, "axbxc a.b*c", "axbxc ***"),
        ({"api_key": "lowercase"}, "lowercase", "***"),
        ({"WANDB_API_KEY": "0123456789"}, "key=0123456789", "key=***"),
        ({"AWS_ACCESS_KEY_ID": "AKIA1234"}, "AKIA1234", "AKIA1234"),
        ({"TOKEN_FILE": "/run/token"}, "/run/token", "/run/token"),
        ({"KEY": "1"}, "1 of 10", "1 of 10"),
        ({"TOKEN": "long", "OTHER_TOKEN": "longer"}, "longer", "***"),
        ({"SSH_KEY": "-----BEGIN\nMIIEowIBAAK\n-----END"}, "got MIIEowIBAAK", "got ***"),
        (
            {"PIP_INDEX_URL": "https://me:p%40ss@host/simple"},
            "https://me:p%40ss@host/simple",
            "https://***@host/simple",
        ),
        ({"PIP_INDEX_URL": "https://me:p%40ss@host/simple"}, "password p@ss", "password ***"),
        ({"UV_INDEX_URL": "https://ghp_0123456789@host/simple"}, "ghp_0123456789", "***"),
        ({"PIP_EXTRA_INDEX_URL": "https://a/s https://u:pw12@b/s"}, "u:pw12", "***"),
        ({"https_proxy": "http://user:word@proxy:8080"}, "word user", "*** user"),
        ({"REPO": "ssh://git@host/x"}, "git clone ssh://git@host/x", "git clone ssh://git@host/x"),
        ({"all_proxy": "user:word@proxy:8080"}, "word user", "*** user"),
        ({"UV_INDEX": "https://host/t/T0KEN-1/simple"}, "GET /t/T0KEN-1/x/", "GET /t/***/x/"),
        ({"UV_INDEX": "https://host/t/T0K%2DEN/simple"}, "no token T0K-EN", "no token ***"),
        ({}, "from https://someone:pw@host/simple", "from https://***@host/simple"),
        ({}, "mail a@b.c, https://host/a@b", "mail a@b.c, https://host/a@b"),
        ({}, "plain", "plain"),
    ],
)
def test_mask(environment: dict[str, str], text: str, expected: str) -> None:
    assert Mask(environment)(text) == expected

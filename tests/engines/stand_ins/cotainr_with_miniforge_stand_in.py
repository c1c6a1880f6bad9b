"""The real cotainr without its one download: a stand-in takes the place of Miniforge's installer."""

import sys
from pathlib import Path

import cotainr.pack
from cotainr.cli import main

INSTALLER = Path(__file__).with_name("miniforge-stand-in.sh")


def copy(self, *, installer_path):
    """Put the installer where cotainr would have downloaded it to."""
    del self
    installer_path.write_bytes(INSTALLER.read_bytes())


cotainr.pack.CondaInstall._download_miniforge_installer = copy
sys.argv[0] = "cotainr"
sys.exit(main())

"""The exact files of an environment for a site."""

"""Recipe, site, target, plan and report: what the other floors pass on."""

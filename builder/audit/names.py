"""Names of the audit in a plan folder, and the code of its finding."""

PLAN, REPORT = "audit.json", "gpu-audit.json"
CODE = "gpu-audit"

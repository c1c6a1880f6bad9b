"""The names that a build gives things in the plan folder."""

PLAN_FILE = "plan.json"
REPORT_FILE = "report.json"
LOGS = "logs"
LOCK_FILE = ".lock"
STATE_FILE = ".state.json"

"""Permission: rules, questions to the user, remembered answers, and the audit log."""

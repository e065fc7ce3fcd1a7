"""Who may do what: rules, questions, remembered answers, and the audit log."""

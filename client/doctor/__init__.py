"""What `psctl doctor` looks at: functions that each return what they found, and change nothing."""

"""What a terminal in the browser runs: the very session asked for, as long as the login lives."""

"""What happens between SIGTERM and exit."""

"""What workers ask of the API: claims, long polls, cancels."""

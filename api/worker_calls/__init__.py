"""The API's side of workers: claims, long polls, cancels."""

"""What users write as JSON, checked and turned into models."""

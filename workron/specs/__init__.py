"""What users write as JSON: validation and conversion to models."""

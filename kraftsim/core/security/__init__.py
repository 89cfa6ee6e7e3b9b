"""Authentication and authorization, without connections."""
